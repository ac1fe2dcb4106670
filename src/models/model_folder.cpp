#include "models/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/ranges.h>

#include "base/lower.h"
#include "base/text.h"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

// The hub's cache has its files three folders down; nobody waits for a whole disk.
constexpr int kDeepest = 3;
constexpr int kMostEntries = 20000;

struct FolderFiles {
  std::vector<std::string> gguf;  // of split models, the first part
  std::vector<std::string> weights;
  std::vector<std::string> hub;  // folders with config.json
  bool trace = false;
  bool closed = false;  // it cannot be read
};

// "model-00002-of-00005.gguf": not where a model begins.
bool is_later_part(const std::string& stem) {
  const size_t of = stem.rfind("-of-");
  if (of == std::string::npos || of < 5) return false;
  const std::string part = stem.substr(of - 5, 5);
  return part.find_first_not_of("0123456789") == std::string::npos && part != "00001";
}

FolderFiles look_into(const std::string& folder) {
  FolderFiles found;
  std::error_code failed;
  found.trace = fs::exists(fs::path(folder) / "manifest.json", failed);
  int entries = 0;
  for (fs::recursive_directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (++entries > kMostEntries) break;
    if (entry.depth() >= kDeepest) entry.disable_recursion_pending();
    std::error_code unreadable;
    if (entry->is_directory(unreadable)) continue;
    const fs::path& path = entry->path();
    const std::string ending = ascii_lower(path.extension().string());
    if (ending == ".gguf" && !is_later_part(path.stem().string()))
      found.gguf.push_back(path.string());
    if (path.filename() == "config.json") found.hub.push_back(path.parent_path().string());
    if (ending == ".safetensors" || path.filename() == "pytorch_model.bin")
      found.weights.push_back(path.filename().string());
  }
  found.closed = failed && entries == 0;
  std::ranges::sort(found.gguf);
  std::ranges::sort(found.weights);
  std::ranges::sort(found.hub);
  return found;
}

}  // namespace

bool is_hub_folder(const std::string& path) {
  std::error_code failed;
  return fs::is_directory(path, failed) && fs::exists(fs::path(path) / "config.json", failed);
}

std::string folder_text(const std::string& folder) {
  constexpr size_t kShown = 5;
  const FolderFiles found = look_into(folder);
  const std::string name = printable(folder);
  if (found.gguf.size() == 1)
    return fmt::format("{} is a folder; give the GGUF file in it: {}", name,
                       printable(found.gguf[0]));
  if (!found.gguf.empty()) {
    std::vector<std::string> shown;
    for (size_t i = 0; i < std::min(found.gguf.size(), kShown); ++i)
      shown.push_back(printable(found.gguf[i]));
    const size_t more = found.gguf.size() - shown.size();
    return fmt::format("{} is a folder with {} GGUF files; give one of them: {}{}", name,
                       found.gguf.size(), fmt::join(shown, ", "),
                       more > 0 ? fmt::format(" and {} more", more) : "");
  }
  if (found.trace) return fmt::format("{} is the folder of a trace; a GGUF file is needed", name);
  if (!found.weights.empty())
    return fmt::format(
        "{} is a folder with a Hugging Face checkpoint ({}{}); {}", name,
        printable(found.weights[0]),
        found.weights.size() > 1 ? fmt::format(" and {} more", found.weights.size() - 1) : "",
        found.hub.empty()
            ? "its config.json is missing"
            : "give the folder in it that has config.json: " + printable(found.hub[0]));
  if (found.closed)
    return fmt::format("{} is a folder that cannot be read; a GGUF file is needed", name);
  return fmt::format(
      "{} is a folder with no GGUF file in it, and no config.json; a GGUF file, or a folder from "
      "the Hugging Face hub, is needed",
      name);
}

}  // namespace lockstep::models
