#include "suite/against.h"

#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "base/text.h"
#include "suite/placeholders.h"
#include "trace/trace.h"

namespace lockstep::suite {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSomeWords = "Write a haiku about rain";

Result<Engine> engine_for(const Against& asked, const Suite& suite) {
  if (auto known = suite.engine(asked.suspect)) {
    if (!asked.folder.empty() && known->target != "transformers")
      return error("--folder is for transformers; this is {}", asked.suspect);
    known->folder = asked.folder;
    return *known;
  }
  Engine engine;
  std::error_code failed;
  if (fs::exists(asked.suspect, failed)) {
    engine.name = "trace";
    engine.kind = EngineKind::kTrace;
    engine.target = asked.suspect;
    return engine;
  }
  const auto words = split_command(asked.suspect);
  const bool traces = std::ranges::count(words_in_braces(asked.suspect), std::string("trace")) > 0;
  if (!traces)
    return error(
        "--against: found '{}', expected {}, a device, a trace that is there, or a command with "
        "{{trace}} for the folder that it writes",
        printable(asked.suspect, 100), fmt::join(kCaptures, ", "));
  if (!words.ok()) return error("--against: {}", words.error().message);
  for (const std::string& word : words_in_braces(asked.suspect))
    if (std::ranges::count(placeholders(), word) == 0)
      return error("--against: unknown placeholder {{{}}}, expected {{{}}}", word,
                   fmt::join(placeholders(), "}, {"));
  engine.name = plain_name(fs::path((*words)[0]).filename().string());
  engine.kind = EngineKind::kCommand;
  engine.command = *words;
  return engine;
}

// A trace says what was run.
Result<void> take_from_trace(const Engine& engine, Case& one, const Against& asked) {
  std::error_code failed;
  if (engine.kind != EngineKind::kTrace || asked.prompt) return {};
  if (!fs::is_directory(engine.target, failed))
    return error("a log does not say its prompt: expected -p, -f or --tokens");
  LS_TRY(const trace::Trace trace, trace::Trace::open(engine.target));
  const trace::Manifest& manifest = trace.manifest();
  if (manifest.prompt_tokens < 1 || manifest.prompt_tokens > std::ssize(manifest.tokens))
    return error("{}: the trace does not say its tokens: expected -p, -f or --tokens",
                 printable(engine.target));
  Prompt& prompt = one.prompts[0];
  prompt.kind = Prompt::Kind::kTokens;
  prompt.tokens.assign(manifest.tokens.begin(), manifest.tokens.begin() + manifest.prompt_tokens);
  if (!asked.n) one.n = std::ssize(manifest.tokens) - manifest.prompt_tokens;
  return {};
}

}  // namespace

Result<Suite> suite_against(const Against& asked) {
  Suite suite;
  LS_TRY(const Engine engine, engine_for(asked, suite));
  suite.name = fmt::format("{} against {}", asked.model, engine.name);
  suite.engines.push_back(engine);
  if (!suite.engine(asked.reference))
    return error("--reference: no engine is called '{}'", printable(asked.reference, 60));
  Case one;
  const std::string stem = fs::path(asked.model).filename().string();
  one.name = plain_name(stem.ends_with(".gguf") ? stem.substr(0, stem.size() - 5) : stem);
  one.model = asked.model;
  one.n = asked.n.value_or(one.n);
  one.reference = asked.reference;
  one.checkpoints = asked.checkpoints;
  one.suspects = {engine.name};
  one.prompts.push_back(asked.prompt.value_or(Prompt{Prompt::Kind::kText, kSomeWords, {}}));
  LS_TRY_VOID(take_from_trace(engine, one, asked));
  suite.cases.push_back(std::move(one));
  return suite;
}

}  // namespace lockstep::suite
