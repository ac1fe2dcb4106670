#include "hub/weights_files.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/json_reader.h"
#include "base/text.h"

namespace lockstep::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhole = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
// What a clone has in place of large files that were not fetched.
constexpr std::string_view kPointer = "version https://git-lfs.github.com/";

bool is_file(const fs::path& path) {
  std::error_code failed;
  return fs::is_regular_file(path, failed);
}

// The name of a file in the folder itself, however the index was made.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.ends_with(".safetensors") &&
         name.find('\0') == std::string::npos;
}

// "model-00001-of-00003.safetensors" and the like, where there is no index.
std::vector<std::string> parts_without_index(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("model") && name.ends_with(".safetensors")) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

Result<void> add_file(const fs::path& path, bool map, WeightsFiles& out) {
  LS_TRY(MappedFile file, take_file(path.string(), map));
  if (text_of(file).starts_with(kPointer))
    return error(
        "{}: found a pointer of Git LFS, expected the tensors themselves: 'git lfs pull' brings "
        "them",
        printable(path.string()));
  LS_TRY(const trace::Safetensors tensors, trace::Safetensors::parse(file.bytes(), path.string()));
  for (const auto& [name, tensor] : tensors.tensors()) {
    const StoredWeight weight{tensor, tensor.data.data() - file.bytes().data()};
    if (!out.weights.emplace(name, weight).second)
      return error("{}: found tensor '{}', expected names that no other file of the model has",
                   printable(path.string()), printable(name, 80));
  }
  out.files.push_back(std::move(file));
  return {};
}

Result<void> add_indexed(const fs::path& folder, bool map, WeightsFiles& out) {
  const std::string path = (folder / kIndex).string();
  std::map<std::string, std::string> index;
  {
    LS_TRY(const MappedFile text, take_file(path, map));
    LS_TRY(index, parse_index(text_of(text), path));
  }
  std::set<std::string> names;
  for (const auto& [tensor, name] : index) names.insert(name);
  for (const std::string& name : names) {
    if (!is_file(folder / name))
      return error("{}: weight_map: found the name {}, expected the file in the same folder",
                   printable(path), printable(name, 80));
    LS_TRY_VOID(add_file(folder / name, map, out));
  }
  for (const auto& [tensor, name] : index)
    if (!out.weights.contains(tensor))
      return error("{}: weight_map: found tensor '{}' in no file, expected it in {}",
                   printable(path), printable(tensor, 80), printable(name, 80));
  return {};
}

}  // namespace

Result<MappedFile> take_file(const std::string& path, bool map) {
  return map ? MappedFile::open(path) : MappedFile::read(path);
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

Result<std::map<std::string, std::string>> parse_index(std::string_view text,
                                                       const std::string& source) {
  constexpr int64_t kMostValues = 5'000'000;
  LS_TRY(const nlohmann::json document, parse_json(text, source, kMostValues));
  const JsonReader files = JsonReader(document, source)["weight_map"];
  LS_TRY_VOID(files.object());
  std::map<std::string, std::string> out;
  for (const auto& [tensor, name] : files.value().items()) {
    LS_TRY(const std::string file, files[tensor].text());
    if (!is_plain_name(file))
      return files[tensor].wrong("the name of a .safetensors file in the same folder");
    out.emplace(tensor, file);
  }
  if (out.empty()) return files.wrong("tensors and their files");
  return out;
}

Result<WeightsFiles> open_weights(const std::string& folder, bool map) {
  WeightsFiles out;
  const fs::path root = folder;
  if (is_file(root / kWhole)) {
    LS_TRY_VOID(add_file(root / kWhole, map, out));
    return out;
  }
  if (is_file(root / kIndex)) {
    LS_TRY_VOID(add_indexed(root, map, out));
    return out;
  }
  for (const std::string& name : parts_without_index(folder))
    LS_TRY_VOID(add_file(root / name, map, out));
  if (!out.files.empty()) return out;
  const bool pickled =
      is_file(root / "pytorch_model.bin") || is_file(root / "pytorch_model.bin.index.json");
  return error("{}: found {}, expected {} or {} with the files that it names", printable(folder),
               pickled ? "pytorch_model.bin alone" : "no weights", kWhole, kIndex);
}

}  // namespace lockstep::hub
