// A folder of our own in the system's place for such; it goes with the object.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/file_lock.h"
#include "base/result.h"

namespace lockstep {

class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create();
  // For long-lived programs, which may be killed: its name begins with `kind`, and folders of that
  // kind go first that no program holds any more.
  static Result<TemporaryFolder> create_of_kind(const std::string& kind);
  TemporaryFolder(TemporaryFolder&& other) noexcept
      : path_(std::move(other.path_)), lock_(std::move(other.lock_)) {
    other.path_.clear();
  }
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  std::optional<FileLock> lock_;  // of a kind
};

}  // namespace lockstep
