#include "cli/model_path.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// Beside the program, as it is built (build/lockstep, models/) or installed (bin/, share/).
std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  if (!failed) {
    const fs::path prefix = program.parent_path().parent_path();
    found = {prefix / "models", prefix / "share/lockstep/models"};
  }
  if (const char* home = std::getenv("HOME")) {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    found.push_back(
        (cache != nullptr && *cache != '\0' ? fs::path(cache) : fs::path(home) / ".cache") /
        "lockstep/models");
  }
  return found;
}

}  // namespace

Result<std::string> model_path(const std::string& name) {
  std::error_code failed;
  if (fs::exists(name, failed)) return name;
  if (name.find('/') != std::string::npos || name.ends_with(".gguf"))
    return error("{}: no such file", name);
  std::vector<std::string> looked;
  for (const fs::path& folder : folders()) {
    const fs::path path = folder / (name + ".gguf");
    if (fs::exists(path, failed)) return path.string();
    looked.push_back(folder.string());
  }
  return error("no model '{}': no such file, and no {}.gguf in {}", name, name,
               fmt::join(looked, ", "));
}

}  // namespace lockstep::cli
