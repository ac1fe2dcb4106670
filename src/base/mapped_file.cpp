#include "base/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/no_throw.h"

namespace lockstep {

namespace {

int64_t in_ns(const timespec& time) {
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

FileStamp stamp_of(const struct stat& info) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return {info.st_dev, info.st_ino, in_ns(info.st_mtim), in_ns(info.st_ctim), in_ns(now)};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  return take(path, true);
}

Result<MappedFile> MappedFile::read(const std::string& path) {
  return take(path, false);
}

Result<MappedFile> MappedFile::take(const std::string& path, bool map) {
  MappedFile file;
  file.path_ = path;
  // Without O_NONBLOCK a pipe that nobody writes to would be waited for here.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return lockstep::error("{}: cannot open: {}", path, std::strerror(errno));
  const Result<void> filled = no_throw([&] { return file.fill(fd, map); });
  ::close(fd);
  if (!filled.ok()) return filled.error();
  return file;
}

Result<void> MappedFile::fill(int fd, bool map) {
  struct stat info {};
  const int stat_error = ::fstat(fd, &info) != 0 ? errno : 0;
  if (stat_error != 0 || !S_ISREG(info.st_mode))
    return lockstep::error("{}: cannot read: {}", path_,
                           stat_error != 0 ? std::strerror(stat_error) : "not a regular file");
  stamp_ = stamp_of(info);
  const auto size = static_cast<size_t>(info.st_size);
  if (map) guard_.emplace();
  if (size == 0) return {};
  if (const int64_t free = available_memory_bytes(); !map && info.st_size > free)
    return lockstep::error("{}: the file has {} bytes, {} bytes of memory are free", path_, size,
                           free);
  void* data =
      map ? ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)
          : ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return lockstep::error("{}: cannot map {} bytes: {}", path_, size, std::strerror(errno));
  data_ = static_cast<const std::byte*>(data);
  size_ = size;
  if (map) {
    guard_.emplace(bytes());
    return {};
  }
  for (size_t done = 0; done < size;) {
    const ssize_t count = ::read(fd, static_cast<char*>(data) + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return lockstep::error("{}: cannot read: {}", path_,
                             count < 0 ? std::strerror(errno) : "it got shorter meanwhile");
    done += static_cast<size_t>(count);
  }
  return {};
}

Result<void> MappedFile::check_unchanged() const {
  if (!is_map()) return {};
  if (cut()) return lockstep::error("{}: the file got shorter while it was in use", path_);
  struct stat info {};
  if (::stat(path_.c_str(), &info) != 0) return {};
  if (static_cast<size_t>(info.st_size) == size_ && in_ns(info.st_mtim) == stamp_.modified_ns &&
      info.st_dev == stamp_.device && info.st_ino == stamp_.inode)
    return {};
  return lockstep::error("{}: the file changed after it was opened; start again to use the new one",
                         path_);
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
  std::swap(stamp_, other.stamp_);
  std::swap(guard_, other.guard_);
  return *this;
}

MappedFile::~MappedFile() {
  guard_.reset();  // before somebody else gets the addresses
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace lockstep
