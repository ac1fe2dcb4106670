// Remembers fingerprints between runs. Within this folder. Nothing here fails: without a cache the
// work is done again.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "gguf/file.h"

namespace lockstep::gguf {

// By absolute path, size and modification time of all files. Both must be as they were.
std::optional<std::string> cached_fingerprint(std::span<const Part> parts);
void cache_fingerprint(std::span<const Part> parts, const std::string& fingerprint);

}  // namespace lockstep::gguf
