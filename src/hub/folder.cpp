#include "hub/folder.h"

#include <algorithm>
#include <filesystem>

#include "base/no_throw.h"
#include "base/text.h"
#include "hub/config.h"
#include "hub/tensors.h"
#include "hub/tokenizer_json.h"
#include "hub/weights_files.h"
#include "models/model_folder.h"

namespace lockstep::hub {
namespace {

namespace fs = std::filesystem;

// What people call the model: the folder's name, or in the hub's cache
// (models--owner--name/snapshots/...) what stands before.
std::string name_of(const std::string& folder) {
  std::error_code failed;
  const fs::path path = fs::absolute(folder, failed).lexically_normal();
  const fs::path named = path.has_filename() ? path : path.parent_path();
  const std::string above = named.parent_path().filename().string();
  const std::string cached = named.parent_path().parent_path().filename().string();
  constexpr std::string_view kMark = "models--";
  if (above != "snapshots" || !cached.starts_with(kMark)) return named.filename().string();
  const size_t dashes = cached.rfind("--");
  return cached.substr(dashes + 2);
}

// GGUF keys are UTF-8, names of folders need not be.
void add_name(const std::string& folder, std::vector<gguf::Entry>& metadata) {
  const std::string name = name_of(folder);
  if (!name.empty() && find_invalid_utf8(name) == std::string::npos)
    metadata.push_back({"general.name", {name}});
}

// Transformers takes nothing else; engines that read the number would cut the table.
Result<void> check_vocabulary(const Config& config, int64_t rows, const std::string& source) {
  const std::string key = fmt::format("{}.vocab_size", config.family->architecture);
  const auto entry = std::ranges::find(config.metadata, key, &gguf::Entry::key);
  if (entry == config.metadata.end() || rows == 0) return {};
  const auto* size = std::get_if<uint32_t>(&entry->value.value);
  if (size == nullptr || static_cast<int64_t>(*size) == rows) return {};
  return error("{}: vocab_size: found {}, expected {}, the rows of the embedding table",
               printable(source), *size, rows);
}

Result<gguf::File> open_folder(const std::string& folder, bool map) {
  const std::string config_path = (fs::path(folder) / "config.json").string();
  LS_TRY(MappedFile config_file, take_file(config_path, map));
  LS_TRY(Config config, read_config(text_of(config_file), config_path));
  LS_TRY(WeightsFiles weights, open_weights(folder, map));
  LS_TRY(Tensors tensors, make_tensors(config, weights.weights, folder));

  int64_t rows = 0;
  for (const gguf::Tensor& tensor : tensors.tensors)
    if (tensor.name == "token_embd.weight" && tensor.dims.size() == 2) rows = tensor.dims[1];
  LS_TRY_VOID(check_vocabulary(config, rows, config_path));

  gguf::Assembly parts;
  parts.path = folder;
  parts.files.push_back(std::move(config_file));
  for (MappedFile& file : weights.files) parts.files.push_back(std::move(file));
  parts.memory = std::move(tensors.memory);
  parts.tensors = std::move(tensors.tensors);
  parts.metadata = std::move(config.metadata);
  add_name(folder, parts.metadata);
  for (gguf::Entry& entry : folder_tokenizer(folder, rows, map))
    parts.metadata.push_back(std::move(entry));
  // They are part of the model: whoever asks whether it changed has to look at them too.
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"})
    if (auto file = take_file((fs::path(folder) / name).string(), map); file.ok())
      parts.files.push_back(*std::move(file));
  return gguf::File::assemble(std::move(parts));
}

}  // namespace

Result<gguf::File> open(const std::string& path, bool map) {
  if (!models::is_hub_folder(path)) return map ? gguf::File::open(path) : gguf::File::read(path);
  return no_throw([&] { return open_folder(path, map); });
}

}  // namespace lockstep::hub
