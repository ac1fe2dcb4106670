// Values of metadata as JSON, and what two of them have to do with each other.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "audit/audit.h"
#include "gguf/file.h"

namespace lockstep::audit {

// Null where the file has no such key.
nlohmann::ordered_json value_of(const gguf::File& file, std::string_view key);

// Numbers by value: of any width, floats as near as single precision tells.
bool same_value(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

// By the values and, where these are absent, by what is assumed then.
KeyVerdict judge_key(const KeyAudit& key);

}  // namespace lockstep::audit
