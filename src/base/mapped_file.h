// A file mapped for reading. Pages come in as they are touched; nothing is loaded up front.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace lockstep {

class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Lets the memory that pages take go back to the system; they come in again when touched.
  void release_pages() const { release_pages(bytes()); }
  // The same for the whole pages of a part of such a map. (Other memory would lose its contents.)
  static void release_pages(std::span<const std::byte> part);
  // Tells the system that these bytes of the file will be wanted soon.
  void read_ahead(std::span<const std::byte> bytes) const;
  int64_t modified_ns() const { return modified_ns_; }  // since 1970, of the file that is mapped

 private:
  MappedFile(std::string path, const std::byte* data, size_t size, int64_t modified_ns)
      : path_(std::move(path)), data_(data), size_(size), modified_ns_(modified_ns) {}

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
};

}  // namespace lockstep
