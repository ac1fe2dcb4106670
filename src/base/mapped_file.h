// A file mapped for reading. Pages come in as they are touched; nothing is loaded up front. (Or
// read into memory, where the file may change.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/map_guard.h"
#include "base/result.h"

namespace lockstep {

// What tells a file from another one and from itself before a change. Times are of the system's
// clock, in nanoseconds since 1970.
struct FileStamp {
  uint64_t device = 0, inode = 0;
  int64_t modified_ns = 0;  // by its contents; may be set at will
  int64_t changed_ns = 0;   // in whatever way; by the system alone
  int64_t seen_ns = 0;      // when this was read
};

class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  // The whole file in memory of our own: what becomes of the file later does not matter.
  static Result<MappedFile> read(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  bool is_map() const { return guard_.has_value(); }
  // An error where the file at this path is no longer the one that was opened, or got shorter. One
  // that was removed is still whole for us.
  Result<void> check_unchanged() const;
  bool cut() const { return guard_ && guard_->cut(); }  // the same in no time: only what was felt

  // Lets the memory that pages take go back to the system; they come in again when touched.
  void release_pages() const {
    if (is_map()) release_pages(bytes());
  }
  // The same for the whole pages of a part of such a map. (Other memory would lose its contents.)
  static void release_pages(std::span<const std::byte> part);
  // Tells the system that these bytes of the file will be wanted soon.
  void read_ahead(std::span<const std::byte> bytes) const;
  const FileStamp& stamp() const { return stamp_; }  // of the file that was opened, at that moment

 private:
  MappedFile() = default;
  static Result<MappedFile> take(const std::string& path, bool map);
  Result<void> fill(int fd, bool map);

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  FileStamp stamp_;
  std::optional<MapGuard> guard_;  // of a map
};

}  // namespace lockstep
