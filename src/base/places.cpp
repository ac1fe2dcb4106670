#include "base/places.h"

#include <cstdlib>
#include <filesystem>

namespace lockstep {

namespace fs = std::filesystem;

Result<std::string> cache_root() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value != nullptr ? value : "");
  };
  // The XDG rules have relative paths ignored.
  if (const fs::path cache = variable("XDG_CACHE_HOME"); cache.is_absolute())
    return (cache / "lockstep").string();
  if (const fs::path home = variable("HOME"); home.is_absolute())
    return (home / ".cache/lockstep").string();
  return error("no cache folder: neither XDG_CACHE_HOME nor HOME is an absolute path");
}

std::vector<std::string> shipped_folders(std::string_view name) {
  // The link that the kernel keeps is the program itself, also where it was started through
  // symbolic links. It lies in build/ beside the folder, or in bin/ beside share/.
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  if (failed) return {};
  const fs::path prefix = program.parent_path().parent_path();
  return {(prefix / name).string(), (prefix / "share/lockstep" / name).string()};
}

}  // namespace lockstep
