// Engines that are other programs.
#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "base/limited_process.h"
#include "base/memory.h"
#include "base/text.h"
#include "models/model_folder.h"
#include "suite/engines.h"
#include "suite/placeholders.h"

namespace lockstep::suite {
namespace {

namespace fs = std::filesystem;

std::string absolute_path(const std::string& path) {
  std::error_code failed;
  const fs::path absolute = fs::absolute(path, failed);
  return failed ? path : absolute.lexically_normal().string();
}

bool uses(const Engine& engine, std::string_view placeholder) {
  for (const std::string& part : engine.command)
    for (const std::string& word : words_in_braces(part))
      if (word == placeholder) return true;
  return false;
}

}  // namespace

std::string ids_text(const std::vector<int32_t>& tokens) {
  return fmt::format("{}", fmt::join(tokens, ","));
}

Result<std::vector<std::string>> command_of(const Suite& suite, const Engine& engine,
                                            const Task& task, const std::string& folder,
                                            const std::string& program) {
  const std::string trace = absolute_path(folder);
  const std::string model = absolute_path(task.model->path);
  if (engine.kind == EngineKind::kCapture) {
    std::string source = model;
    // A model that is a folder from the hub is what transformers reads.
    if (engine.target == "transformers" &&
        !(engine.folder.empty() && models::is_hub_folder(model))) {
      if (engine.folder.empty())
        return error("transformers reads no GGUF file; expected folder = \"...\" in [engine.{}]",
                     engine.name);
      const std::string folder_name =
          fill(engine.folder, {{"name", fs::path(model).stem().string()}}, false);
      source = suite.path(folder_name);
      std::error_code failed;
      if (!fs::exists(source, failed)) source = folder_name;  // an id of the hub
    }
    std::vector<std::string> out = {program,
                                    "capture",
                                    engine.target,
                                    "--model=" + source,
                                    "--tokens=" + ids_text(task.tokens),
                                    fmt::format("--max-tokens={}", task.n),
                                    "--checkpoints=" + task.checkpoints,
                                    "--output=" + trace};
    if (!engine.python.empty()) out.push_back("--python=" + engine.python);
    out.insert(out.end(), engine.options.begin(), engine.options.end());
    return out;
  }
  if (uses(engine, "prompt") && task.text.empty())
    return error("[engine.{}] wants {{prompt}}, and the case gives token ids", engine.name);
  const std::map<std::string, std::string> values = {
      {"model", model},      {"tokens", ids_text(task.tokens)},
      {"prompt", task.text}, {"n", fmt::format("{}", task.n)},
      {"trace", trace},      {"checkpoints", task.checkpoints}};
  if (engine.shell)
    return std::vector<std::string>{"/bin/sh", "-c", fill(engine.command[0], values, true)};
  std::vector<std::string> out;
  for (const std::string& word : engine.command) out.push_back(fill(word, values, false));
  return out;
}

Result<std::string> Engines::run_program(const Engine& engine,
                                         const std::vector<std::string>& command,
                                         const std::string& folder, Failure& failure) {
  ProcessLimits limits;
  limits.seconds = engine.timeout;
  limits.memory_bytes = engine.memory_gb > 0
                            ? static_cast<int64_t>(engine.memory_gb * 1e9)
                            : std::max<int64_t>(available_memory_bytes() / 10 * 9, 1 << 28);
  LS_TRY(LimitedOutcome outcome, run_limited(command, limits, cancel_));
  failure.output = outcome.output;
  if (!outcome.succeeded()) return error("the program {}", describe(outcome, limits));
  std::error_code failed;
  if (!fs::exists(folder, failed)) return error("the program wrote no trace");
  return std::move(outcome.output);
}

}  // namespace lockstep::suite
