#include "base/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace lockstep {

Result<TemporaryFolder> TemporaryFolder::create() {
  std::error_code failed;
  const auto place = std::filesystem::temp_directory_path(failed);
  if (failed) return error("no folder for temporary files: {}", failed.message());
  std::string pattern = (place / "lockstep-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr)
    return error("{}: cannot create a temporary folder: {}", place.string(), std::strerror(errno));
  return TemporaryFolder(pattern);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep
