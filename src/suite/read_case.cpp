#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "base/near_names.h"
#include "base/text.h"
#include "exec/registry.h"
#include "suite/read_engine.h"
#include "trace/checkpoints.h"

namespace lockstep::suite {
namespace {

namespace fs = std::filesystem;

std::string stem_of(const std::string& model) {
  std::string name = model.substr(model.find_last_of('/') + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return plain_name(name);
}

bool is_pattern(const std::string& model) {
  return model.find_first_of("*?") != std::string::npos;
}

// "models/*.gguf" becomes a case for each of the files, by name.
Result<std::vector<std::string>> matching_files(const Suite& suite, const std::string& pattern) {
  const fs::path path = suite.path(pattern);
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  if (is_pattern(folder))
    return error("'{}': a pattern may stand in a file's name, not in its folder's",
                 printable(pattern, 200));
  std::error_code failed;
  std::vector<std::string> out;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    if (!trace::glob_matches(path.filename().string(), name)) continue;
    out.push_back((fs::path(pattern).parent_path() / name).string());
  }
  if (out.empty())
    return error("'{}': no file of {} is called so", printable(pattern, 200), printable(folder));
  std::ranges::sort(out);
  return out;
}

// What the table names: patterns as the files that there are.
Result<std::vector<std::string>> read_models(const TomlTable& table, const Suite& suite,
                                             bool look) {
  LS_TRY(const std::vector<std::string> written, table.texts("model"));
  if (written.empty()) return table.wrong("model", "the name of a model or a GGUF file");
  std::vector<std::string> out;
  for (const std::string& model : written) {
    if (!look || !is_pattern(model)) {
      out.push_back(model);
      continue;
    }
    const auto files = matching_files(suite, model);
    if (!files.ok()) return table.wrong(fmt::format("model: {}", files.error().message));
    out.insert(out.end(), files->begin(), files->end());
  }
  return out;
}

Result<void> check_engine(const TomlTable& table, std::string_view key, const Suite& suite,
                          const std::string& name) {
  if (suite.engine(name)) return {};
  std::vector<std::string> known;
  for (const Engine& engine : suite.engines) known.push_back(engine.name);
  for (const exec::Device& device : exec::devices()) known.emplace_back(device.name);
  known.insert(known.end(), std::begin(kCaptures), std::end(kCaptures));
  const auto near = nearest_names(name, known);
  return table.wrong(
      fmt::format("{}: no engine is called '{}', expected {}", key, printable(name, 60),
                  near.empty() ? fmt::format("one of {}", fmt::join(known, ", "))
                               : fmt::format("perhaps {}", fmt::join(near, " or "))));
}

Result<std::vector<Prompt>> read_prompts(const TomlTable& table) {
  std::vector<Prompt> out;
  LS_TRY(const auto texts, table.texts("prompts"));
  for (const std::string& text : texts) {
    if (find_invalid_utf8(text) != std::string::npos) return table.wrong("prompts", "UTF-8");
    out.push_back({Prompt::Kind::kText, text, {}});
  }
  LS_TRY(auto lists, table.number_lists("tokens"));
  for (auto& tokens : lists) {
    if (std::ssize(tokens) > kMostTokens)
      return table.wrong("tokens", fmt::format("at most {} ids in a prompt", kMostTokens));
    out.push_back({Prompt::Kind::kTokens, "", std::move(tokens)});
  }
  LS_TRY(const auto files, table.texts("prompt_file"));
  for (const std::string& file : files) out.push_back({Prompt::Kind::kFile, file, {}});
  if (out.empty()) return table.wrong("no prompt, expected prompts, tokens or prompt_file");
  return out;
}

Result<void> check_set(const TomlTable& table, const std::string& set) {
  for (size_t begin = 0; begin <= set.size();) {
    const size_t end = std::min(set.find(',', begin), set.size());
    if (begin == end)
      return table.wrong("checkpoints",
                         "logits, layers, ops, all, or names and patterns separated by commas");
    begin = end + 1;
  }
  return {};
}

}  // namespace

Result<std::vector<Case>> read_cases(const TomlTable& table, const Suite& suite, bool look) {
  LS_TRY_VOID(table.only({"name", "model", "prompts", "tokens", "prompt_file", "n", "reference",
                          "suspects", "checkpoints"}));
  Case shared;
  LS_TRY(const std::string name, table.text("name", ""));
  if (!name.empty() && !is_plain_name(name))
    return table.wrong("name", "letters, digits and . _ - (files are called after it)");
  LS_TRY(const std::vector<std::string> models, read_models(table, suite, look));
  LS_TRY(shared.prompts, read_prompts(table));
  LS_TRY(shared.n, table.integer("n", shared.n, 0, kMostTokens));
  LS_TRY(shared.checkpoints, table.text("checkpoints", shared.checkpoints));
  LS_TRY_VOID(check_set(table, shared.checkpoints));
  LS_TRY(shared.reference, table.text("reference", shared.reference));
  LS_TRY_VOID(check_engine(table, "reference", suite, shared.reference));
  LS_TRY(shared.suspects, table.texts("suspects"));
  if (shared.suspects.empty()) return table.wrong("suspects", "the engines in question");
  for (size_t i = 0; i < shared.suspects.size(); ++i) {
    LS_TRY_VOID(check_engine(table, "suspects", suite, shared.suspects[i]));
    if (std::ranges::find(shared.suspects.begin(), shared.suspects.begin() + static_cast<long>(i),
                          shared.suspects[i]) != shared.suspects.begin() + static_cast<long>(i))
      return table.wrong(fmt::format("suspects: '{}' stands there twice", shared.suspects[i]));
  }
  std::vector<Case> out;
  for (const std::string& model : models) {
    Case& one = out.emplace_back(shared);
    one.model = model;
    one.name = name.empty()         ? stem_of(model)
               : models.size() == 1 ? name
                                    : fmt::format("{}.{}", name, stem_of(model));
  }
  return out;
}

Result<Known> read_known(const TomlTable& table) {
  LS_TRY_VOID(table.only({"suspect", "checkpoint", "model", "case", "reason"}));
  Known known;
  LS_TRY(known.suspect, table.text("suspect", ""));
  LS_TRY(known.checkpoint, table.text("checkpoint", ""));
  LS_TRY(known.model, table.text("model", ""));
  LS_TRY(known.case_name, table.text("case", ""));
  LS_TRY(known.reason, table.text("reason", ""));
  known.line = table.line();
  if (known.reason.empty()) return table.wrong("reason", "why the defect is there");
  if (known.suspect.empty()) return table.wrong("suspect", "the engine that has the defect");
  return known;
}

}  // namespace lockstep::suite
