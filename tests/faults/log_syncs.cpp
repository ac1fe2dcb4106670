// Test-only, for LD_PRELOAD: logs what a process syncs to the disk and what it gives a name, a line
// each into the file that LOG_SYNCS names:
//
//   sync DEVICE:INODE BYTES
//   name DEVICE:INODE BYTES PATH
#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

void log_line(const char* what, const struct stat& info, const char* path) {
  const char* log = std::getenv("LOG_SYNCS");
  const int fd = log != nullptr ? ::open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
  if (fd < 0) return;
  ::dprintf(fd, "%s %lu:%lu %lld %s\n", what, static_cast<unsigned long>(info.st_dev),
            static_cast<unsigned long>(info.st_ino), static_cast<long long>(info.st_size), path);
  ::close(fd);
}

void log_sync(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) == 0) log_line("sync", info, "");
}

void log_name(const char* path) {
  struct stat info {};
  if (::stat(path, &info) == 0) log_line("name", info, path);
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int fsync(int fd) {
  const int outcome = next<int(int)>("fsync")(fd);
  if (outcome == 0) log_sync(fd);
  return outcome;
}

int fdatasync(int fd) {
  const int outcome = next<int(int)>("fdatasync")(fd);
  if (outcome == 0) log_sync(fd);
  return outcome;
}

int rename(const char* from, const char* to) noexcept {
  const int outcome = next<int(const char*, const char*)>("rename")(from, to);
  if (outcome == 0) log_name(to);
  return outcome;
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  const int outcome = next<int(int, const char*, int, const char*, int)>("linkat")(
      from_folder, from, to_folder, to, flags);
  if (outcome == 0) log_name(to);
  return outcome;
}
}
