// A download that is not whole yet: FILE.part, and beside it FILE.part.json that says of what.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace lockstep::models {

// What the first bytes came from. More may only be put behind them if it is still the same.
struct PartOrigin {
  std::string url;
  std::string validator;    // ETag or Last-Modified of the answer; "": it had none
  int64_t total_bytes = 0;  // 0: the server did not say
};

class PartFile {
 public:
  // Opens or makes it. What is there without a readable origin is worth nothing and is dropped.
  static Result<PartFile> open(const std::string& final_path);

  PartFile(PartFile&& other) noexcept;
  PartFile& operator=(PartFile&& other) noexcept;
  ~PartFile();  // closes; the bytes stay

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }
  const PartOrigin& origin() const { return origin_; }

  Result<void> restart();                          // empty, of unknown origin
  Result<void> set_origin(PartOrigin origin);      // on disk before the bytes
  Result<void> add(std::span<const char> bytes);   // at the end
  Result<void> finish(const std::string& target);  // durable, then under its final name
  Result<void> remove();

 private:
  PartFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string origin_path() const { return path_ + ".json"; }
  void load_origin();

  std::string path_;
  int fd_ = -1;
  int64_t size_bytes_ = 0;
  PartOrigin origin_;
};

}  // namespace lockstep::models
