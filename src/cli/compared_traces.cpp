#include "cli/compared_traces.h"

#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <span>

#include "base/notice.h"
#include "base/output_file.h"
#include "base/temporary_folder.h"
#include "base/text.h"
#include "cli/log_problems.h"
#include "cli/model_path.h"
#include "gguf/fingerprint.h"
#include "hub/folder.h"
#include "tokenizer/tokenizer.h"
#include "trace/jsonl_import.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> search_interrupted = false;

void on_interrupt_of_search(int signal) {
  search_interrupted = true;
  std::signal(signal, SIG_DFL);  // the second one ends the program at once
}

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

// The model that manifests name. A file counts where it has their fingerprint or, where there is
// none, where the engine says that it lay. Nothing found: why, a clause.
struct Found {
  std::string path;
  std::string why_not;
};

struct Named {
  const trace::Trace* trace;
  const std::string* given;  // its path
};

Found find_recorded_model(std::span<const Named> traces) {
  std::string wanted;
  std::string name;
  for (const Named& each : traces) {
    const trace::ModelInfo& info = each.trace->manifest().model;
    if (wanted.empty()) wanted = info.fingerprint;
    if (name.empty()) name = info.file;
  }
  std::string looked;
  for (const Named& each : traces)
    for (const std::string& candidate : candidates(*each.trace, *each.given)) {
      // Without a fingerprint a name alone is not enough: another file may have it.
      if (wanted.empty() && candidate != each.trace->manifest().model.path) continue;
      const auto path = model_path(candidate);
      const auto file = path.ok() ? hub::open(*path) : Result<gguf::File>(path.error());
      const bool same = file.ok() && (wanted.empty() || gguf::fingerprint(*file) == wanted);
      if (same) return {*path, ""};
      if (looked.find(candidate) == std::string::npos)
        looked += fmt::format("{}{}{}", looked.empty() ? "" : ", ", candidate,
                              file.ok() ? " (another file)" : "");
    }
  if (looked.empty()) return {"", "no model file was given (-m), and the traces name none"};
  return {"", fmt::format("no model file was given (-m); looked for {} at {} and did not find it",
                          printable(name), printable(looked, 300))};
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
  std::optional<model::Model> suspect_model;        // where the suspect ran another file
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null where there is none
  std::string path;
  std::string suspect_path;
  std::string why_not;  // where there is none
};

bool ran_another(const trace::Trace& trace, const std::string& fingerprint) {
  const std::string& own = trace.manifest().model.fingerprint;
  return !own.empty() && own != fingerprint;
}

// Without a file for each: the one that is given, or that both name, counts for both; where a side
// ran another one, that is looked for.
Result<OpenModel> find_models(const TracePaths& paths, const Named& reference,
                              const Named& suspect) {
  OpenModel out;
  const std::string& a = reference.trace->manifest().model.fingerprint;
  const std::string& b = suspect.trace->manifest().model.fingerprint;
  const bool different = !a.empty() && !b.empty() && a != b;
  if (!paths.model.empty()) {
    LS_TRY(out.path, model_path(paths.model));
  } else {
    const Named both[] = {reference, suspect};
    const bool of_one = different || !paths.suspect_model.empty();
    Found found = find_recorded_model(std::span(both).first(of_one ? 1 : 2));
    if (found.path.empty() && different && paths.suspect_model.empty())
      found.why_not =
          fmt::format("the sides ran different model files; of the reference's, {}", found.why_not);
    out.path = found.path;
    out.why_not = found.why_not;
  }
  if (!paths.suspect_model.empty()) {
    LS_TRY(out.suspect_path, model_path(paths.suspect_model));
    if (out.path.empty())
      return error("--suspect-model needs the reference's file too: {}", out.why_not);
  } else if (different && !out.path.empty()) {
    // One file was given, or found: the other is the one that its own trace names.
    LS_TRY(const gguf::File file, hub::open(out.path));
    const std::string fingerprint = gguf::fingerprint(file);
    if (ran_another(*suspect.trace, fingerprint))
      out.suspect_path = find_recorded_model({&suspect, 1}).path;
    if (ran_another(*reference.trace, fingerprint) && b == fingerprint)
      if (const Found own = find_recorded_model({&reference, 1}); !own.path.empty()) {
        out.suspect_path = out.path;
        out.path = own.path;
      }
  }
  return out;
}

Result<OpenModel> open_model(const TracePaths& paths, const trace::Trace& reference,
                             const trace::Trace& suspect) {
  LS_TRY(OpenModel out,
         find_models(paths, {&reference, &paths.reference}, {&suspect, &paths.suspect}));
  if (out.path.empty()) return out;
  if (paths.model.empty())
    notice("replaying with {}, the model that the {} name{}\n", out.path,
           out.suspect_path.empty() ? "traces" : "reference's trace",
           out.suspect_path.empty() ? "" : "s");
  if (!out.suspect_path.empty() && paths.suspect_model.empty())
    notice("judging the suspect by {}, the model that its trace names\n", out.suspect_path);
  LS_TRY(out.model, model::Model::load(out.path));
  if (auto loaded = tokenizer::Tokenizer::load(out.model->file()); loaded.ok())
    out.tokenizer = std::move(*loaded);
  if (out.suspect_path.empty()) return out;
  LS_TRY(out.suspect_model, model::Model::load(out.suspect_path));
  // The same file twice is one file.
  if (gguf::fingerprint(out.model->file()) == gguf::fingerprint(out.suspect_model->file())) {
    out.suspect_model.reset();
    out.suspect_path.clear();
  }
  return out;
}

struct Opened {
  std::optional<trace::Trace> reference;
  std::optional<trace::Trace> suspect;  // none: the reference alone was given
};

Result<Opened> open_traces(const TracePaths& paths) {
  Opened out;
  LS_TRY(out.reference, open_trace_or_log(paths.reference));
  if (!paths.suspect.empty()) {
    LS_TRY(out.suspect, open_trace_or_log(paths.suspect));
  }
  LS_TRY(const auto names, read_names(paths.names));
  report::rename_checkpoints(names, *out.reference);
  if (out.suspect) report::rename_checkpoints(names, *out.suspect);
  return out;
}

// The words of a comparison of a trace with itself are those of one trace against its model.
void tell_of_one(Compared& compared) {
  parity::Comparison& c = compared.comparison;
  if (c.first_defect && c.first_defect->side == parity::Side::kBoth)
    c.first_defect->side = parity::Side::kSuspect;
  std::erase_if(c.notes, [](const std::string& note) { return note.starts_with("the reference"); });
  compared.subject.reference = {compared.subject.model, "the model file"};
}

int64_t page_bytes(const Page& page) {
  return static_cast<int64_t>(page.limit * 1e6);
}

}  // namespace

Result<Compared> compare_traces(const TracePaths& paths, parity::CompareOptions options,
                                Diagnosing diagnosing, bool until_interrupted) {
  const bool one = paths.suspect.empty();
  LS_TRY(const Opened opened, open_traces(paths));
  const trace::Trace& reference = *opened.reference;
  const trace::Trace& suspect = one ? reference : *opened.suspect;
  LS_TRY(const OpenModel model, open_model(paths, reference, suspect));
  if (one && !model.model)
    return error("a trace alone is judged by its model file: {}", model.why_not);
  if (!model.why_not.empty()) options.no_model = model.why_not;
  if (model.suspect_model) options.suspect_model = &*model.suspect_model;
  if (until_interrupted) {
    diagnosing.interrupted = &search_interrupted;
    diagnosing.begins = [] { std::signal(SIGINT, on_interrupt_of_search); };
  }
  LS_TRY(Compared out, report::compare(reference, suspect, model.model ? &*model.model : nullptr,
                                       model.tokenizer.get(), options, diagnosing));
  out.subject.reference.path = paths.reference;  // of logs, rather than where they were unpacked
  out.subject.suspect.path = one ? paths.reference : paths.suspect;
  out.subject.model = model.path;
  out.subject.suspect_model = model.suspect_path;
  if (search_interrupted)
    notice("lockstep: interrupted; what the search had found until then is shown\n");
  if (one) tell_of_one(out);
  return out;
}

Result<parity::Findings> compare_part_of_traces(const TracePaths& paths,
                                                parity::CompareOptions options, const Part& part) {
  LS_TRY(const Opened opened, open_traces(paths));
  LS_TRY(const OpenModel model, open_model(paths, *opened.reference, *opened.suspect));
  if (model.suspect_model) options.suspect_model = &*model.suspect_model;
  LS_TRY(parity::Findings out,
         parity::compare_part(*opened.reference, *opened.suspect,
                              model.model ? &*model.model : nullptr, options, part));
  out.paths = {paths.reference, paths.suspect, model.path, model.suspect_path, paths.names};
  return out;
}

void add_suspect_model(CLI::App& app, std::string& model) {
  add_value(app, "--suspect-model", model, kModel,
            "The suspect's own model, where it ran another file than the reference: each side is "
            "judged by its own, and the difference is explained (default: the file that its trace "
            "names, where it is found)");
}

void add_judging_device(CLI::App& app, std::string& device) {
  add_value(app, "--device", device, kJudgingDevice,
            "What multiplies with weights, nearly all of a judgement: cuda or cpu, with the same "
            "results (default: the GPU where there is one)");
}

void add_page(CLI::App& app, Page& page) {
  add_value(app, "--html", page.file, kOutputFile,
            "Write one HTML page: a map of all rows, and the worst ones with their numbers");
  add_number(app, "--html-limit", page.limit, {1, 1000},
             "Megabytes that the page's data may take; what is least wrong is left out")
      ->default_str("20");
}

void keep_rows(const Page& page, parity::CompareOptions& options) {
  options.rows = !page.file.empty();
  options.opened_bytes = page_bytes(page) / 2;
}

Result<void> write_page(const Page& page, const Compared& compared) {
  if (page.file.empty()) return {};
  return write_file(page.file,
                    report::html_report(compared.comparison, compared.subject, page_bytes(page)));
}

Result<void> write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  LS_TRY(OutputFile file, OutputFile::create(path));
  LS_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return file.finish();
}

}  // namespace lockstep::cli
