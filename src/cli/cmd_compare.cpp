// lockstep compare: two traces side by side, with a verdict.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <unistd.h>

#include "base/memory.h"
#include "base/notice.h"
#include "base/output_file.h"
#include "base/temporary_folder.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/log_problems.h"
#include "cli/model_path.h"
#include "cli/number_list.h"
#include "cli/options.h"
#include "exec/product_devices.h"
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
  std::string device;
  parity::CompareOptions options;
  bool json = false;
  std::string junit;
  std::string markdown;
  std::string csv;
  std::string html;
};

// What ends the program waits while this lives, and ends it then: nothing is left behind that must
// be cleared away.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&held, signal);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

// A trace's folder, or a JSONL log, which is turned into a trace first. What cannot be read of a
// log is told.
Result<trace::Trace> open_trace_or_log(const std::string& path) {
  std::error_code failed;
  if (!fs::exists(path, failed)) return error("{}: no such trace or log", path);
  if (fs::is_directory(path, failed)) return trace::Trace::open(path);
  const HeldSignals held;  // until the folder is gone
  LS_TRY(const TemporaryFolder folder, TemporaryFolder::create());
  LS_TRY(const trace::ImportOutcome outcome, trace::import_jsonl(path, folder.path().string()));
  print_problems(outcome.problems, path, "lockstep import --json");
  return trace::Trace::open(folder.path().string());  // stays mapped when the folder goes
}

// Where a trace's model may lie: where it lay when it ran, beside the trace, here, or among the
// models that we know by name.
std::vector<std::string> candidates(const trace::Trace& trace, const std::string& given_path) {
  const trace::ModelInfo& info = trace.manifest().model;
  const std::string name = fs::path(info.file).filename().string();
  std::vector<std::string> out;
  if (!info.path.empty()) out.push_back(info.path);
  if (!info.file.empty()) out.push_back(info.file);
  if (!name.empty()) {
    out.push_back((fs::path(given_path).parent_path() / name).string());
    out.push_back(name);
  }
  return out;
}

// Without -m: the model that the manifests name. A file counts where it has their fingerprint or,
// where there is none, where the engine says that it lay. Nothing found: why, a clause.
struct Found {
  std::string path;
  std::string why_not;
};

Found find_recorded_model(const trace::Trace& reference, const trace::Trace& suspect,
                          const Flags& flags) {
  const trace::ModelInfo& a = reference.manifest().model;
  const trace::ModelInfo& b = suspect.manifest().model;
  if (!a.fingerprint.empty() && !b.fingerprint.empty() && a.fingerprint != b.fingerprint)
    return {"", "the sides ran different model files; -m chooses one"};
  const std::string& wanted = a.fingerprint.empty() ? b.fingerprint : a.fingerprint;
  std::string looked;
  for (const auto& [trace, given] :
       {std::pair(&reference, &flags.reference), std::pair(&suspect, &flags.suspect)})
    for (const std::string& candidate : candidates(*trace, *given)) {
      // Without a fingerprint a name alone is not enough: another file may have it.
      if (wanted.empty() && candidate != trace->manifest().model.path) continue;
      const auto path = model_path(candidate);
      const auto file = path.ok() ? gguf::File::open(*path) : Result<gguf::File>(path.error());
      const bool same = file.ok() && (wanted.empty() || gguf::fingerprint(*file) == wanted);
      if (same) return {*path, ""};
      if (looked.find(candidate) == std::string::npos)
        looked += fmt::format("{}{}{}", looked.empty() ? "" : ", ", candidate,
                              file.ok() ? " (another file)" : "");
    }
  if (looked.empty()) return {"", "no model file was given (-m), and the traces name none"};
  return {"", fmt::format("no model file was given (-m); looked for {} at {} and did not find it",
                          printable(a.file.empty() ? b.file : a.file), printable(looked, 300))};
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
  std::string why_not;  // where there is none
};

Result<OpenModel> open_model(const Flags& flags, const trace::Trace& reference,
                             const trace::Trace& suspect) {
  OpenModel out;
  if (!flags.model.empty()) {
    LS_TRY(out.path, model_path(flags.model));
  } else {
    const Found found = find_recorded_model(reference, suspect, flags);
    out.why_not = found.why_not;
    if (found.path.empty()) return out;
    out.path = found.path;
    notice("replaying with {}, the model that the traces name\n", out.path);
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

// What the model's tokenizer tells of prompts that differ.
parity::TokenKnowledge token_knowledge(const OpenModel& model) {
  parity::TokenKnowledge out;
  if (model.tokenizer == nullptr) return out;
  const tokenizer::Tokenizer& tokenizer = *model.tokenizer;
  out.bos = tokenizer.bos();
  out.text = [&tokenizer](const std::vector<int32_t>& tokens) {
    std::string text;
    for (const int32_t token : tokens)
      text += token < tokenizer.size() ? tokenizer.piece(token, true) : std::string("?");
    return text;
  };
  return out;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  LS_TRY(OutputFile file, OutputFile::create(path));
  LS_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return file.finish();
}

Result<int> run(const Flags& flags) {
  keep_freed_memory();
  parity::CompareOptions options = flags.options;
  if (!flags.positions.empty()) {
    LS_TRY(options.positions, parse_number_list(flags.positions));
  }
  LS_TRY(options.device, exec::create_products(flags.device));
  LS_TRY(trace::Trace reference, open_trace_or_log(flags.reference));
  LS_TRY(trace::Trace suspect, open_trace_or_log(flags.suspect));
  LS_TRY(const auto names, read_names(flags.names));
  rename_checkpoints(names, reference);
  rename_checkpoints(names, suspect);
  LS_TRY(const OpenModel model, open_model(flags, reference, suspect));
  options.tokens = token_knowledge(model);
  if (!model.why_not.empty()) options.no_model = model.why_not;
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
  add_value(app, "reference", flags->reference, kTraceOrLog,
            "Trace (or JSONL log) of the engine that is trusted")
      ->required();
  add_value(app, "suspect", flags->suspect, kTraceOrLog,
            "Trace (or JSONL log) of the engine in question")
      ->required();
  add_value(app, "-m,--model", flags->model, kModel,
            "GGUF file or name of the model: every op is replayed and both sides are judged "
            "(default: the file that the traces name, where it is found)");
  add_value(app, "--checkpoints", flags->options.checkpoints, kCheckpointSet,
            "logits, layers, ops, all, or names and globs separated by commas")
      ->default_str(flags->options.checkpoints);
  add_value(
      app, "--positions", flags->positions, kNumberList,
      "Positions to replay, such as 0,5,10-20; the verdict is then about those (default: all)");
  add_number(
      app, "--budget", flags->options.budget, {0, 1e9},
      "Seconds that the replay may take, about: where all positions take longer, a sample is "
      "replayed, and the verdict is about that (default: no limit)");
  add_number(app, "--min-coverage", flags->options.min_coverage, {0, 1},
             "Less than this part of the rows on both sides, 0 to 1, is inconclusive");
  add_value(app, "--names", flags->names, kInputFile,
            "Name map of an engine that recorded under its own names (docs/name-maps.md; those "
            "of llama.cpp and transformers are known)");
  add_value(app, "--device", flags->device, kJudgingDevice,
            "What multiplies with weights, nearly all of a judgement: cuda or cpu, with the same "
            "results (default: the GPU where there is one)");
  add_threads(app, flags->options.threads);
  app.add_flag("--json", flags->json, "As JSON (docs/compare-json.md)");
  add_value(app, "--html", flags->html, kOutputFile, "Write one HTML page");
  add_value(app, "--junit", flags->junit, kOutputFile, "Write JUnit XML, a test case a checkpoint");
  add_value(app, "--markdown", flags->markdown, kOutputFile, "Write Markdown for a pull request");
  add_value(app, "--csv", flags->csv, kOutputFile, "Write the metrics, a line a checkpoint");
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
    "Exit status: 0 in parity, 1 not (or inconclusive: what was recorded does not reach the end), "
    "2\n"
    "unreadable, or the wrong model.\n",
    compare_command::declare,
};

}  // namespace lockstep::cli
