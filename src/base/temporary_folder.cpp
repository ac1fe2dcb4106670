#include "base/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {

namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = "lock";

Result<fs::path> temporary_place() {
  std::error_code failed;
  fs::path place = fs::temp_directory_path(failed);
  if (failed) return error("no folder for temporary files: {}", failed.message());
  return place;
}

Result<fs::path> new_folder(const std::string& kind) {
  LS_TRY(const fs::path place, temporary_place());
  std::string pattern = (place / (kind + "XXXXXX")).string();
  if (mkdtemp(pattern.data()) == nullptr)
    return error("{}: cannot create a temporary folder: {}", place.string(), std::strerror(errno));
  return fs::path(pattern);
}

bool is_ours(const fs::path& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 && found.st_uid == ::geteuid();
}

// One without a lock may be one that another program is just making.
void remove_left_behind(const fs::path& place, const std::string& kind) {
  std::error_code failed;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(place, failed), end; !failed && at != end; at.increment(failed))
    if (at->path().filename().string().starts_with(kind)) found.push_back(at->path());
  for (const fs::path& folder : found) {
    if (!is_ours(folder) || !fs::is_directory(fs::symlink_status(folder, failed)) ||
        !is_ours(folder / kLockName))
      continue;
    if (const auto lock = FileLock::take((folder / kLockName).string(), "its use"); lock.ok())
      fs::remove_all(folder, failed);
  }
}

}  // namespace

Result<TemporaryFolder> TemporaryFolder::create() {
  LS_TRY(fs::path folder, new_folder("lockstep-"));
  return TemporaryFolder(std::move(folder));
}

Result<TemporaryFolder> TemporaryFolder::create_of_kind(const std::string& kind) {
  LS_TRY(const fs::path place, temporary_place());
  remove_left_behind(place, kind);
  constexpr int kTries = 3;
  for (int left = kTries - 1;; --left) {
    LS_TRY(fs::path folder, new_folder(kind));
    TemporaryFolder made(std::move(folder));
    auto lock = FileLock::take((made.path_ / kLockName).string(), "its use");
    // Another program may have taken it for one that was left behind.
    if (!lock.ok() && left > 0) continue;
    if (!lock.ok()) return lock.error();
    made.lock_.emplace(std::move(*lock));
    return made;
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep
