#include "models/locate.h"

#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "base/places.h"
#include "base/text.h"
#include "models/catalog.h"
#include "models/model_folder.h"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".gguf";

std::string near_text(const std::string& name, const std::vector<LocalModel>& local) {
  std::vector<std::string> names = {kDefaultModel};
  for (const LocalModel& model : local) names.push_back(model.name);
  for (const KnownModel& model : known_models()) names.emplace_back(model.name);
  const std::vector<std::string> near = near_models(name, names);
  return near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

}  // namespace

Result<std::string> cache_folder() {
  LS_TRY(const std::string root, cache_root());
  return (fs::path(root) / "models").string();
}

std::vector<Folder> model_folders() {
  std::vector<Folder> folders;
  for (std::string& path : shipped_folders("models")) folders.push_back({std::move(path), true});
  if (const auto cache = cache_folder(); cache.ok()) folders.push_back({*cache, false});
  return folders;
}

std::vector<LocalModel> local_models(const std::vector<Folder>& folders) {
  std::vector<LocalModel> result;
  for (const Folder& folder : folders) {
    std::vector<LocalModel> found;
    std::error_code failed;
    // A folder that is missing or closed to us holds no models.
    for (fs::directory_iterator entry(folder.path, failed), end; !failed && entry != end;
         entry.increment(failed)) {
      std::string name = entry->path().filename().string();
      std::error_code unreadable;
      if (!name.ends_with(kEnding) || !entry->is_regular_file(unreadable)) continue;
      name.resize(name.size() - kEnding.size());
      const auto same = [&](const LocalModel& model) { return model.name == name; };
      if (std::any_of(result.begin(), result.end(), same)) continue;
      const auto size = entry->file_size(unreadable);
      found.push_back({name, entry->path().string(), unreadable ? 0 : static_cast<int64_t>(size),
                       folder.shipped});
    }
    std::sort(found.begin(), found.end(),
              [](const LocalModel& a, const LocalModel& b) { return a.name < b.name; });
    result.insert(result.end(), found.begin(), found.end());
  }
  return result;
}

Result<std::string> find_model(const std::string& name, const std::vector<Folder>& folders) {
  std::error_code failed;
  // A folder that happens to be called like a model (haiku/) is no model, but one of the hub is.
  if (fs::exists(name, failed) && (!fs::is_directory(name, failed) || is_hub_folder(name)))
    return name;
  if (name.empty()) return error("the name of the model is empty");
  if (name.find('/') != std::string::npos)
    return fs::is_directory(name, failed) ? error("{}", folder_text(name))
                                          : error("{}: no such file", printable(name));

  const std::string stem =
      name.ends_with(kEnding) ? name.substr(0, name.size() - kEnding.size()) : name;
  const std::vector<LocalModel> local = local_models(folders);
  std::vector<std::string> names;
  for (const LocalModel& model : local) names.push_back(model.name);
  if (const auto index = resolve(stem, names)) return local[*index].path;

  if (fs::is_directory(name, failed)) return error("{}", folder_text(name));
  if (const KnownModel* known = find_known(stem))
    return error("model '{}' is not downloaded yet: lockstep models pull {}", name, known->name);
  std::vector<std::string> looked;
  for (const Folder& folder : folders) looked.push_back(folder.path);
  return error("no model '{}': no such file, and no model of that name in {}{}", name,
               fmt::join(looked, ", "), near_text(stem, local));
}

Result<std::string> find_model(const std::string& name) {
  return find_model(name, model_folders());
}

}  // namespace lockstep::models
