#include "base/mapped_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {

Result<MappedFile> MappedFile::open(const std::string& path) {
  // Without O_NONBLOCK a pipe that nobody writes to would be waited for here.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return lockstep::error("{}: cannot open: {}", path, std::strerror(errno));
  struct stat info {};
  const int stat_error = ::fstat(fd, &info) != 0 ? errno : 0;
  if (stat_error != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return lockstep::error("{}: cannot read: {}", path,
                           stat_error != 0 ? std::strerror(stat_error) : "not a regular file");
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int map_error = errno;
  ::close(fd);
  if (data == MAP_FAILED)
    return lockstep::error("{}: cannot map {} bytes: {}", path, size, std::strerror(map_error));
  const int64_t modified_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
  return MappedFile(path, static_cast<const std::byte*>(data), size, modified_ns);
}

void MappedFile::release_pages(std::span<const std::byte> part) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t end = begin + part.size();
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

void MappedFile::read_ahead(std::span<const std::byte> bytes) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(bytes.data() - data_) % page;  // maps begin at a page
  if (!bytes.empty())
    ::madvise(const_cast<std::byte*>(bytes.data()) - offset, bytes.size() + offset, MADV_WILLNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept {
  *this = std::move(other);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(modified_ns_, other.modified_ns_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace lockstep
