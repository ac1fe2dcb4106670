// The files of a folder that tell of tokens: tokenizer.json, tokenizer_config.json, the template.
#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/json_reader.h"
#include "base/notice.h"
#include "base/text.h"
#include "hub/tokenizer_json.h"
#include "hub/weights_files.h"

namespace lockstep::hub {
namespace {

namespace fs = std::filesystem;
using Entries = std::vector<gguf::Entry>;

bool has(const Entries& entries, std::string_view key) {
  return std::ranges::find(entries, key, &gguf::Entry::key) != entries.end();
}

const std::vector<std::string>& tokens_of(const Entries& entries) {
  const auto entry = std::ranges::find(entries, "tokenizer.ggml.tokens", &gguf::Entry::key);
  return std::get<std::vector<std::string>>(std::get<gguf::Array>(entry->value.value).items);
}

// A token is a text, or an object around one.
Result<std::string> token_text(const JsonReader& token) {
  return token.present() && token.value().is_object() ? token["content"].text() : token.text();
}

Result<void> add_special(const JsonReader& config, std::string_view name, Entries& out) {
  const std::string key = fmt::format("tokenizer.ggml.{}_id", name);
  const JsonReader token = config[name];
  if (!token.present() || has(out, key)) return {};
  LS_TRY(const std::string text, token_text(token));
  const std::vector<std::string>& tokens = tokens_of(out);
  const auto found = std::ranges::find(tokens, text);
  if (found != tokens.end()) out.push_back({key, {static_cast<uint32_t>(found - tokens.begin())}});
  return {};
}

// A text, or several with their names, of which one is the default.
Result<void> add_template(const JsonReader& templates, Entries& out) {
  if (!templates.present() || has(out, "tokenizer.chat_template")) return {};
  if (templates.value().is_string()) {
    LS_TRY(std::string text, templates.text());
    out.push_back({"tokenizer.chat_template", {std::move(text)}});
    return {};
  }
  LS_TRY(const std::vector<JsonReader> items, templates.items());
  for (const JsonReader& item : items) {
    LS_TRY(const std::string name, item["name"].text());
    if (name == "default") return add_template(item["template"], out);
  }
  return {};
}

Result<nlohmann::json> read_json(const fs::path& path, bool map) {
  constexpr int64_t kMostValues = 5'000'000;
  LS_TRY(const MappedFile file, take_file(path.string(), map));
  return parse_json(text_of(file), path.string(), kMostValues);
}

// The tokens that end an answer: a number, or a list of them. GGUF files have keys for three.
Result<void> add_ends(const JsonReader& ends, const std::string& source, Entries& out) {
  if (!ends.present()) return {};
  std::vector<JsonReader> items = {ends};
  if (ends.value().is_array()) {
    LS_TRY(items, ends.items());
  }
  const auto count = static_cast<int64_t>(tokens_of(out).size());
  std::vector<uint32_t> known;
  std::vector<std::string_view> free;
  for (const std::string_view name : {"eos", "eot", "eom"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    const auto entry = std::ranges::find(out, key, &gguf::Entry::key);
    if (entry == out.end())
      free.push_back(name);
    else
      known.push_back(std::get<uint32_t>(entry->value.value));
  }
  for (const JsonReader& item : items) {
    LS_TRY(const int64_t id, item.integer(0, std::numeric_limits<int32_t>::max()));
    const auto token = static_cast<uint32_t>(id);
    if (id >= count || std::ranges::find(known, token) != known.end()) continue;
    if (free.empty()) {
      notice("{}: GGUF files have keys for three tokens that end an answer; '{}' is left out\n",
             source, printable(tokens_of(out)[token], 80));
      continue;
    }
    out.push_back({fmt::format("tokenizer.ggml.{}_token_id", free.front()), {token}});
    free.erase(free.begin());
    known.push_back(token);
  }
  return {};
}

Result<Entries> read_files(const fs::path& folder, int64_t rows, bool map) {
  const std::string path = (folder / "tokenizer.json").string();
  LS_TRY(const MappedFile file, take_file(path, map));
  LS_TRY(Entries out, read_tokenizer(text_of(file), path, rows));
  std::error_code failed;
  if (const fs::path own = folder / "chat_template.jinja"; fs::exists(own, failed)) {
    LS_TRY(const MappedFile text, take_file(own.string(), map));
    if (find_invalid_utf8(text_of(text)) != std::string::npos)
      return error("{}: found bytes that are no UTF-8, expected a template", own.string());
    out.push_back({"tokenizer.chat_template", {std::string(text_of(text))}});
  }
  if (const fs::path path_of_config = folder / "tokenizer_config.json";
      fs::exists(path_of_config, failed)) {
    LS_TRY(const nlohmann::json document, read_json(path_of_config, map));
    const JsonReader config(document, path_of_config.string());
    LS_TRY_VOID(config.object());
    for (const std::string_view name : {"bos_token", "eos_token"})
      LS_TRY_VOID(add_special(config, name, out));
    LS_TRY_VOID(add_template(config["chat_template"], out));
  }
  // What ends an answer stands in the one, or else in the other.
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path ends = folder / name;
    if (!fs::exists(ends, failed)) continue;
    LS_TRY(const nlohmann::json document, read_json(ends, map));
    const JsonReader found = JsonReader(document, ends.string())["eos_token_id"];
    if (!found.present()) continue;
    LS_TRY_VOID(add_ends(found, ends.string(), out));
    break;
  }
  return out;
}

}  // namespace

Entries folder_tokenizer(const std::string& folder, int64_t rows, bool map) {
  std::error_code failed;
  const Entries none = {{"tokenizer.ggml.model", {std::string("none")}}};
  if (!fs::exists(fs::path(folder) / "tokenizer.json", failed)) return none;
  const Result<Entries> read = read_files(folder, rows, map);
  if (read.ok()) return *read;
  notice("{}\nthe tokenizer is not supported: the model runs on token ids\n", read.error().message);
  return none;
}

}  // namespace lockstep::hub
