// Metadata values, read and checked. Within this folder.
#pragma once

#include <string_view>

#include "base/result.h"
#include "gguf/cursor.h"
#include "gguf/value.h"

namespace lockstep::gguf {

// A type and the value of that type. `key` is for messages.
Result<Value> read_value(Cursor& cursor, std::string_view key);

}  // namespace lockstep::gguf
