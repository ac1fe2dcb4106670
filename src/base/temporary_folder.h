// A folder of our own in the system's place for such; it goes with the object.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace lockstep {

class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create();
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace lockstep
