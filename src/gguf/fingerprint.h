// Identity of a model: a hash over metadata and tensor data.
#pragma once

#include <string>

#include "base/result.h"
#include "gguf/file.h"

namespace lockstep::gguf {

// 32 hexadecimal digits, independent of file name, split and alignment. Computed once a file and
// kept in the user's cache folder, by path, size and modification time.
Result<std::string> fingerprint(const File& file);

}  // namespace lockstep::gguf
