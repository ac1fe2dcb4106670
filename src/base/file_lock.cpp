#include "base/file_lock.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Whether `path` still names the file behind `fd`: its holder may have removed it meanwhile.
bool same_file(const std::string& path, int fd) {
  struct stat named {};
  struct stat open_file {};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &open_file) == 0 &&
         named.st_dev == open_file.st_dev && named.st_ino == open_file.st_ino;
}

}  // namespace

Result<FileLock> FileLock::take(const std::string& path, const std::string& what) {
  for (;;) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return error("{}: cannot make the lock file: {}", path, std::strerror(errno));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int failed = errno;
      ::close(fd);
      if (failed == EINTR) continue;
      if (failed == EWOULDBLOCK) return error("{}: {} is under way already", path, what);
      return error("{}: cannot lock: {}", path, std::strerror(failed));
    }
    if (same_file(path, fd)) return FileLock(path, fd);
    ::close(fd);
  }
}

FileLock::FileLock(FileLock&& other) noexcept {
  *this = std::move(other);
}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  ::unlink(path_.c_str());  // while it is held, so that nobody can lock what goes away
  ::close(fd_);
}

}  // namespace lockstep
