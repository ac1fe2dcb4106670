#include "forge/spec.h"
#include "gguf/file.h"
#include "hub/folder.h"

namespace lockstep::forge {

Result<std::vector<gguf::Entry>> read_tokenizer(const std::string& path) {
  LS_TRY(const gguf::File file, hub::open(path));
  std::vector<gguf::Entry> entries;
  for (const gguf::Entry& entry : file.metadata())
    if (entry.key.starts_with("tokenizer.")) entries.push_back(entry);
  if (entries.empty()) return error("{}: the file has no tokenizer", path);
  return entries;
}

int64_t token_count(const std::vector<gguf::Entry>& tokenizer) {
  for (const gguf::Entry& entry : tokenizer) {
    const auto* list = std::get_if<gguf::Array>(&entry.value.value);
    if (entry.key == "tokenizer.ggml.tokens" && list != nullptr) return list->size();
  }
  return 0;
}

}  // namespace lockstep::forge
