// Remembers fingerprints between runs. Within this folder. Nothing here fails: without a cache the
// work is done again.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "gguf/file.h"

namespace lockstep::gguf {

// By absolute path, size, device, inode and times of all files: of the times one may be set at
// will, but not the other. Files that changed just before they were opened are not remembered: a
// second change may have the same time.
std::optional<std::string> cached_fingerprint(std::span<const Part> parts);
void cache_fingerprint(std::span<const Part> parts, const std::string& fingerprint);

}  // namespace lockstep::gguf
