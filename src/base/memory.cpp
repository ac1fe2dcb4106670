#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include <unistd.h>

#ifdef __GLIBC__  // known after the headers above
#include <malloc.h>
#endif

namespace lockstep {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

int64_t read_number(const char* path, int64_t otherwise) {
  std::ifstream in(path);
  int64_t number = 0;
  return in >> number ? number : otherwise;
}

int64_t machine_free() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  std::string unit;
  while (in >> key >> kilobytes) {
    std::getline(in, unit);
    if (key == "MemAvailable:") return kilobytes * 1024;
  }
  return kUnlimited;
}

// Control groups, version 2 then 1; "max" does not parse and means no limit.
int64_t group_free() {
  const int64_t limit =
      read_number("/sys/fs/cgroup/memory.max",
                  read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", kUnlimited));
  if (limit == kUnlimited) return kUnlimited;
  const int64_t used = read_number("/sys/fs/cgroup/memory.current",
                                   read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", 0));
  return std::max<int64_t>(0, limit - used);
}

}  // namespace

int64_t resident_memory_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t size_pages = 0, resident_pages = 0;
  in >> size_pages >> resident_pages;
  return resident_pages * ::sysconf(_SC_PAGESIZE);
}

int64_t available_memory_bytes() {
  return std::min(machine_free(), group_free());
}

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLarge = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kLarge);
  mallopt(M_TRIM_THRESHOLD, kLarge);
#endif
}

}  // namespace lockstep
