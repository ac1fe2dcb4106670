// Identity of a model: a hash over metadata and tensor data.
#pragma once

#include <string>

#include "gguf/file.h"

namespace lockstep::gguf {

// 32 hexadecimal digits, independent of file name, split and alignment, and of the order of
// metadata and tensors. Computed once a file and kept in the user's cache folder
// ($XDG_CACHE_HOME/lockstep), by path, size and modification time.
std::string fingerprint(const File& file);

// The same from the data itself, whatever the cache says.
std::string compute_fingerprint(const File& file);

}  // namespace lockstep::gguf
