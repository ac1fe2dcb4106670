// The tokenizers of two files: lists item by item, and what is done with BOS, EOS and templates.
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <set>

#include "audit/keys.h"

namespace lockstep::audit {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kPrefix = "tokenizer.";
constexpr std::string_view kOwn = "tokenizer.lockstep.";
constexpr size_t kShownItems = 8;

bool is_list(const gguf::File& file, std::string_view key) {
  const gguf::Value* value = file.find(key);
  return value != nullptr && value->type() == gguf::Type::kArray;
}

ListAudit audit_list(const gguf::File& a, const gguf::File& b, const std::string& key) {
  ListAudit out;
  out.key = key;
  const ordered_json items_a = value_of(a, key), items_b = value_of(b, key);
  if (items_a.is_array()) out.size_a = static_cast<int64_t>(items_a.size());
  if (items_b.is_array()) out.size_b = static_cast<int64_t>(items_b.size());
  const size_t size_a = static_cast<size_t>(out.size_a.value_or(0));
  const size_t size_b = static_cast<size_t>(out.size_b.value_or(0));
  for (size_t i = 0; i < std::max(size_a, size_b); ++i) {
    const ordered_json item_a = i < size_a ? items_a[i] : ordered_json(nullptr);
    const ordered_json item_b = i < size_b ? items_b[i] : ordered_json(nullptr);
    if (same_value(item_a, item_b)) continue;
    ++out.different;
    if (out.first.size() < kShownItems)
      out.first.push_back({static_cast<int64_t>(i), item_a, item_b});
  }
  return out;
}

// What the tokenizer does where the file has no key for it; null where it cannot be loaded.
class Rules {
 public:
  explicit Rules(const gguf::File& file) {
    auto loaded = tokenizer::Tokenizer::load(file);
    if (loaded.ok()) tokenizer_ = std::move(*loaded);
  }

  ordered_json assumed(std::string_view key) const {
    if (tokenizer_ == nullptr) return nullptr;
    if (key == "tokenizer.ggml.add_bos_token") return tokenizer_->adds_bos();
    if (key == "tokenizer.ggml.add_eos_token") return false;
    if (key == "tokenizer.ggml.add_space_prefix") return tokenizer_->adds_space();
    return nullptr;
  }

 private:
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

// All keys of both files, those of A first.
std::vector<std::string> tokenizer_keys(const gguf::File& a, const gguf::File& b) {
  std::vector<std::string> keys;
  std::set<std::string, std::less<>> seen;
  for (const gguf::File* file : {&a, &b})
    for (const gguf::Entry& entry : file->metadata())
      if (entry.key.starts_with(kPrefix) && seen.insert(entry.key).second)
        keys.push_back(entry.key);
  // What only our own converter keeps is no difference where another one made the file.
  std::erase_if(keys, [&](const std::string& key) {
    return key.starts_with(kOwn) && (a.find(key) == nullptr || b.find(key) == nullptr);
  });
  // Rules that neither file gives are worth seeing too.
  if (seen.contains("tokenizer.ggml.tokens"))
    for (const char* rule : {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"})
      if (seen.insert(rule).second) keys.emplace_back(rule);
  return keys;
}

}  // namespace

bool TokenizerAudit::equal() const {
  return std::ranges::all_of(lists, &ListAudit::fine) && std::ranges::all_of(keys, &KeyAudit::fine);
}

TokenizerAudit audit_tokenizer(const gguf::File& a, const gguf::File& b) {
  TokenizerAudit out;
  const Rules rules_a(a), rules_b(b);
  for (const std::string& key : tokenizer_keys(a, b)) {
    if (is_list(a, key) || is_list(b, key)) {
      out.lists.push_back(audit_list(a, b, key));
      continue;
    }
    KeyAudit row;
    row.key = key;
    row.a = value_of(a, key);
    row.b = value_of(b, key);
    if (row.a.is_null()) row.assumed_a = rules_a.assumed(key);
    if (row.b.is_null()) row.assumed_b = rules_b.assumed(key);
    if (row.a.is_null() && row.b.is_null() && row.assumed_a.is_null() && row.assumed_b.is_null())
      continue;
    row.verdict = judge_key(row);
    out.keys.push_back(std::move(row));
  }
  return out;
}

}  // namespace lockstep::audit
