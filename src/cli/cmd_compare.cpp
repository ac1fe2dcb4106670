// lockstep compare: two traces side by side, with a verdict.
#include <cstdio>
#include <filesystem>
#include <memory>

#include <unistd.h>

#include "base/output_file.h"
#include "base/temporary_folder.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/number_list.h"
#include "gguf/fingerprint.h"
#include "parity/compare.h"
#include "report/report.h"
#include "tokenizer/tokenizer.h"
#include "trace/jsonl_import.h"

namespace lockstep::cli {
namespace compare_command {

namespace fs = std::filesystem;

// Lines for a pipe or a file.
constexpr int64_t kPlainWidth = 100;

struct Flags {
  std::string reference;
  std::string suspect;
  std::string model;
  std::string positions;
  std::string names;
  parity::CompareOptions options;
  bool json = false;
  std::string junit;
  std::string markdown;
  std::string csv;
  std::string html;
};

// A trace's folder, or a JSONL log, which is turned into a trace first. What cannot be read of a
// log is told.
Result<trace::Trace> open_trace_or_log(const std::string& path) {
  std::error_code failed;
  if (!fs::exists(path, failed)) return error("{}: no such trace or log", path);
  if (fs::is_directory(path, failed)) return trace::Trace::open(path);
  LS_TRY(const TemporaryFolder folder, TemporaryFolder::create());
  LS_TRY(const trace::ImportOutcome outcome, trace::import_jsonl(path, folder.path().string()));
  for (const trace::JsonlProblem& problem : outcome.problems)
    fmt::print(stderr, "{}\n", trace::to_text(problem, path));
  return trace::Trace::open(folder.path().string());  // stays mapped when the folder goes
}

// Without -m: the model that the manifests name, where a file with their fingerprint is at hand.
// Traces of two different models are compared without one.
std::optional<std::string> find_recorded_model(const trace::Trace& reference,
                                               const trace::Trace& suspect) {
  const std::string& a = reference.manifest().model.fingerprint;
  const std::string& b = suspect.manifest().model.fingerprint;
  if (!a.empty() && !b.empty() && a != b) return std::nullopt;
  const std::string& wanted = a.empty() ? b : a;
  if (wanted.empty()) return std::nullopt;
  for (const auto* trace : {&reference, &suspect}) {
    const std::string& recorded = trace->manifest().model.file;
    if (recorded.empty()) continue;
    for (const std::string& candidate : {recorded, fs::path(recorded).filename().string()}) {
      const auto path = model_path(candidate);
      if (!path.ok()) continue;
      const auto file = gguf::File::open(*path);
      if (file.ok() && gguf::fingerprint(*file) == wanted) return *path;
    }
  }
  return std::nullopt;
}

// Engines may record under their own names; the manifest says whose they are.
void rename_checkpoints(const std::optional<trace::NameMap>& given, trace::Trace& trace) {
  const std::string& engine = trace.manifest().engine.name;
  const trace::NameMap* map = given && given->engine() == engine ? &*given : nullptr;
  if (map == nullptr) map = trace::find_name_map(engine);
  if (map != nullptr) trace.rename(*map);
}

Result<std::optional<trace::NameMap>> read_names(const std::string& path) {
  if (path.empty()) return std::optional<trace::NameMap>();
  LS_TRY(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  LS_TRY(trace::NameMap map,
         trace::NameMap::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path));
  return std::optional(std::move(map));
}

struct OpenModel {
  std::optional<model::Model> model;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null where there is none
  std::string path;
};

Result<OpenModel> open_model(const Flags& flags, const trace::Trace& reference,
                             const trace::Trace& suspect) {
  OpenModel out;
  if (!flags.model.empty()) {
    LS_TRY(out.path, model_path(flags.model));
  } else {
    const auto found = find_recorded_model(reference, suspect);
    if (!found) return out;
    out.path = *found;
    fmt::print(stderr, "replaying with {}, the model that the traces name\n", out.path);
  }
  LS_TRY(out.model, model::Model::load(out.path));
  if (auto loaded = tokenizer::Tokenizer::load(out.model->file()); loaded.ok())
    out.tokenizer = std::move(*loaded);
  return out;
}

std::optional<report::TokenPair> first_difference(const parity::Comparison& comparison,
                                                  const trace::Trace& reference,
                                                  const trace::Trace& suspect,
                                                  const OpenModel& model) {
  if (!comparison.tokens.first_difference) return std::nullopt;
  report::TokenPair pair;
  pair.index = *comparison.tokens.first_difference;
  const auto show = [&](const trace::Trace& trace, std::optional<int32_t>& id,
                        std::optional<std::string>& text) {
    const auto& tokens = trace.manifest().tokens;
    if (pair.index >= static_cast<int64_t>(tokens.size())) return;
    id = tokens[static_cast<size_t>(pair.index)];
    // Ids of another model's vocabulary would be shown as words that they are not.
    const std::string& fingerprint = trace.manifest().model.fingerprint;
    const bool own = model.tokenizer != nullptr &&
                     (fingerprint.empty() || fingerprint == gguf::fingerprint(model.model->file()));
    if (own && *id < model.tokenizer->size()) text = model.tokenizer->piece(*id, true);
  };
  show(reference, pair.reference, pair.reference_text);
  show(suspect, pair.suspect, pair.suspect_text);
  return pair;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  LS_TRY(OutputFile file, OutputFile::create(path));
  LS_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return file.finish();
}

Result<int> run(const Flags& flags) {
  parity::CompareOptions options = flags.options;
  if (!flags.positions.empty()) {
    LS_TRY(options.positions, parse_number_list(flags.positions));
  }
  LS_TRY(trace::Trace reference, open_trace_or_log(flags.reference));
  LS_TRY(trace::Trace suspect, open_trace_or_log(flags.suspect));
  LS_TRY(const auto names, read_names(flags.names));
  rename_checkpoints(names, reference);
  rename_checkpoints(names, suspect);
  LS_TRY(const OpenModel model, open_model(flags, reference, suspect));
  LS_TRY(const parity::Comparison comparison,
         parity::compare(reference, suspect, model.model ? &*model.model : nullptr, options));

  report::Subject subject;
  subject.reference = report::describe(reference);
  subject.suspect = report::describe(suspect);
  subject.reference.path = flags.reference;  // of logs, rather than where they were unpacked
  subject.suspect.path = flags.suspect;
  subject.model = model.path;
  subject.difference = first_difference(comparison, reference, suspect, model);

  LS_TRY_VOID(write_file(flags.junit, report::junit_report(comparison, subject)));
  LS_TRY_VOID(write_file(flags.markdown, report::markdown_report(comparison, subject)));
  LS_TRY_VOID(write_file(flags.csv, report::csv_report(comparison)));
  LS_TRY_VOID(write_file(flags.html, report::html_report(comparison, subject)));
  const std::string shown =
      flags.json
          ? report::json_report(comparison, subject)
          : report::terminal_report(comparison, subject, terminal_width(STDOUT_FILENO, kPlainWidth),
                                    Paint(terminal_colours(STDOUT_FILENO)));
  if (std::fwrite(shown.data(), 1, shown.size(), stdout) != shown.size() ||
      std::fflush(stdout) != 0)
    return error("cannot write to standard output");
  return comparison.parity ? kDone : kFailedCheck;
}

std::function<Result<int>()> declare(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.add_option("reference", flags->reference,
                 "Trace (or JSONL log) of the engine that is trusted")
      ->required();
  app.add_option("suspect", flags->suspect, "Trace (or JSONL log) of the engine in question")
      ->required();
  app.add_option("-m,--model", flags->model,
                 "GGUF file or name of the model: every op is replayed and both sides are judged "
                 "(default: the file that the traces name, where it is found)");
  app.add_option("--checkpoints", flags->options.checkpoints,
                 "logits, layers, ops, all, or names and globs separated by commas")
      ->capture_default_str();
  app.add_option(
         "--positions", flags->positions,
         "Positions to replay, such as 0,5,10-20; the verdict is then about those (default: "
         "all where that is cheap, otherwise a sample)")
      ->type_name("LIST");
  app.add_option(
         "--names", flags->names,
         "Name map of an engine that recorded under its own names (docs/name-maps.md; those "
         "of llama.cpp and transformers are known)")
      ->type_name("FILE");
  app.add_option("-t,--threads", flags->options.threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 4096));
  app.add_flag("--json", flags->json, "As JSON (docs/compare-json.md)");
  app.add_option("--html", flags->html, "Write one HTML page")->type_name("FILE");
  app.add_option("--junit", flags->junit, "Write JUnit XML, a test case a checkpoint")
      ->type_name("FILE");
  app.add_option("--markdown", flags->markdown, "Write Markdown for a pull request")
      ->type_name("FILE");
  app.add_option("--csv", flags->csv, "Write the metrics, a line a checkpoint")->type_name("FILE");
  return [flags] { return run(*flags); };
}

}  // namespace compare_command

const Command kCompareCommand = {
    "compare",
    "Compare two traces: verdict, first defect, which side is wrong",
    "  lockstep compare reference.trace mine.trace -m model.gguf\n"
    "  lockstep compare a.trace b.trace --checkpoints layers --html report.html\n"
    "  lockstep compare a.trace b.trace --positions 0,5,10-20 --json\n"
    "  lockstep compare a.trace b.trace --junit parity.xml --markdown parity.md\n"
    "\n"
    "Exit status: 0 in parity, 1 not, 2 unreadable.\n",
    compare_command::declare,
};

}  // namespace lockstep::cli
