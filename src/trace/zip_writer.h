// A zip archive of members that are stored as they are, written in one go: what numpy calls npz.
// Archives and members beyond 4 GiB are fine (zip64).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"

namespace lockstep::trace {

class ZipWriter {
 public:
  static Result<ZipWriter> create(const std::string& path);

  // The size is known at the start, the checksum at the end: it follows the data.
  Result<void> begin(const std::string& name, int64_t size_bytes);
  Result<void> write(std::span<const std::byte> bytes);
  Result<void> end();

  Result<void> finish();

 private:
  explicit ZipWriter(OutputFile file) : file_(std::move(file)) {}

  struct Member {
    std::string name;
    uint64_t size_bytes = 0;
    uint64_t offset = 0;  // of its local header
    uint32_t crc = 0;
  };

  Result<void> put(const std::string& bytes);

  OutputFile file_;
  std::vector<Member> members_;
  uint64_t written_ = 0;  // into the file
  uint64_t left_ = 0;     // of the current member
};

}  // namespace lockstep::trace
