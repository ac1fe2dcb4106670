#include "base/close_files.h"

#include <charconv>
#include <string_view>

#include <dirent.h>
#include <dlfcn.h>

namespace lockstep {

void add_close_from(posix_spawn_file_actions_t& actions, int first) {
  // Looked for at run time: what was built for an older C library may run with a newer one.
  using CloseFrom = int (*)(posix_spawn_file_actions_t*, int);
  static const auto close_from = reinterpret_cast<CloseFrom>(
      ::dlsym(RTLD_DEFAULT, "posix_spawn_file_actions_addclosefrom_np"));
  if (close_from == nullptr || close_from(&actions, first) != 0) add_close_each(actions, first);
}

void add_close_each(posix_spawn_file_actions_t& actions, int first) {
  DIR* open_files = ::opendir("/proc/self/fd");
  if (open_files == nullptr) return;
  while (const dirent* entry = ::readdir(open_files)) {
    const std::string_view name = entry->d_name;
    int file = -1;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), file);
    if (failed == std::errc{} && file >= first && file != ::dirfd(open_files))
      posix_spawn_file_actions_addclose(&actions, file);
  }
  ::closedir(open_files);
}

}  // namespace lockstep
