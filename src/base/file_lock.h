// One process at a time: a lock that ends with the process, however it ends.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep {

class FileLock {
 public:
  // Makes `path` and locks it. Fails at once where another process holds it; `what` is for the
  // message ("a download of x").
  static Result<FileLock> take(const std::string& path, const std::string& what);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();  // removes the file

 private:
  FileLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
};

}  // namespace lockstep
