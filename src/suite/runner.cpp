#include "suite/runner.h"

#include <chrono>
#include <filesystem>

#include "base/mapped_file.h"
#include "base/no_throw.h"
#include "base/output_file.h"
#include "base/text.h"
#include "gguf/fingerprint.h"
#include "report/compared.h"
#include "suite/judged.h"
#include "suite/key.h"
#include "trace/jsonl_import.h"

namespace lockstep::suite {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostPromptFile = 64 << 20;
constexpr size_t kMostOutput = 8192;  // of a program, in a result

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string shown_prompt(const Prompt& prompt) {
  return prompt.kind == Prompt::Kind::kTokens ? ids_text(prompt.tokens) : prompt.text;
}

Result<void> make_parent(const std::string& path) {
  std::vector<std::string> made;
  return make_folders(path, false, made);
}

Result<void> write_text(const std::string& path, const std::string& text) {
  LS_TRY(OutputFile file, OutputFile::create(path));
  LS_TRY_VOID(file.write(std::as_bytes(std::span(text))));
  return file.publish();
}

// The end of a text, where programs say what went wrong.
std::string tail_of(const std::string& text) {
  if (text.size() <= kMostOutput) return text;
  return "...\n" + text.substr(text.size() - kMostOutput);
}

}  // namespace

Result<trace::Trace> open_recorded(const std::string& path, const std::string& unpacked) {
  std::string folder = path;
  std::error_code failed;
  if (fs::is_regular_file(path, failed)) {
    LS_TRY(const trace::ImportOutcome outcome, trace::import_jsonl(path, unpacked));
    if (!outcome.problems.empty() && !outcome.problems.front().kept)
      return error("the log has {} lines that cannot be read, first: {}", outcome.problems.size(),
                   trace::to_text(outcome.problems.front(), path));
    folder = unpacked;
  }
  LS_TRY(trace::Trace trace, trace::Trace::open(folder));
  if (!trace.manifest().complete) return error("the trace says that it is not complete");
  report::rename_checkpoints(std::nullopt, trace);
  return trace;
}

Result<void> copy_folder(const std::string& from, const std::string& to, bool link) {
  std::error_code failed;
  fs::remove_all(to, failed);
  LS_TRY_VOID(make_parent(fs::path(to).parent_path().string()));
  if (link) {
    fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::create_hard_links, failed);
    if (!failed) return {};
    fs::remove_all(to, failed);
  }
  fs::copy(from, to, fs::copy_options::recursive, failed);
  if (failed) return error("{}: cannot copy the trace: {}", printable(to), failed.message());
  return {};
}

Runner::Runner(const Suite& suite, RunOptions options, TemporaryFolder folder)
    : suite_(suite),
      options_(std::move(options)),
      folder_(std::move(folder)),
      engines_(suite, options_.program, options_.cancel) {
  if (!options_.cache.empty()) cache_.emplace(options_.cache, options_.cache_bytes);
}

Result<std::unique_ptr<Runner>> Runner::create(const Suite& suite, RunOptions options) {
  LS_TRY(TemporaryFolder folder, TemporaryFolder::create());
  return std::unique_ptr<Runner>(new Runner(suite, std::move(options), std::move(folder)));
}

Result<Task> Runner::task_of(const Case& one, const Prompt& prompt) {
  Task task;
  LS_TRY(task.model, engines_.open(one.model));
  task.model_name = one.model;
  task.n = one.n;
  task.checkpoints = one.checkpoints;
  task.tokens = prompt.tokens;
  if (prompt.kind != Prompt::Kind::kTokens) {
    task.text = prompt.text;
    if (prompt.kind == Prompt::Kind::kFile) {
      LS_TRY(const MappedFile file, MappedFile::open(suite_.path(prompt.text)));
      const auto bytes = file.bytes();
      if (std::ssize(bytes) > kMostPromptFile)
        return error("{}: the prompt has more than {} bytes", printable(prompt.text),
                     kMostPromptFile);
      task.text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    if (task.model->tokenizer == nullptr)
      return error("the model has no tokenizer; give the prompt as tokens = [[1, 2, 3]]");
    task.tokens = task.model->tokenizer->encode(task.text);
  }
  if (task.tokens.empty()) return error("the prompt has no tokens; the model needs at least one");
  return task;
}

std::string Runner::key_of_reference(const Case& one, const Engine& engine, const Task& task) {
  Key key;
  key.add("reference");
  key.add_number(kNumerics);
  key.add(LOCKSTEP_VERSION);
  key.add(gguf::fingerprint(task.model->model.file()));
  key.add(task.tokens);
  key.add_number(task.n);
  key.add(one.checkpoints);
  key.add(engine.target);
  key.add(engine.kv);
  return key.finish();
}

// A trace that somebody keeps, with what it was made for.
Result<trace::Trace> Runner::golden(const std::string& place, const std::string& key) {
  const auto made_for = MappedFile::open(place + ".key");
  if (!made_for.ok())
    return error("{}: no golden trace ({}); --record-goldens makes them", printable(place),
                 made_for.error().message);
  const auto bytes = made_for->bytes();
  const std::string_view found(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (found != key + "\n")
    return error(
        "{}: the golden trace is of another model, prompt, n, checkpoints or engine; "
        "--record-goldens makes it anew",
        printable(place));
  return open_recorded(place, (folder_.path() / "golden").string());
}

Result<trace::Trace> Runner::reference_trace(const Case& one, size_t prompt, const Task& task,
                                             Failure& failure) {
  const std::optional<Engine> engine = suite_.engine(one.reference);
  LS_CHECK(engine.has_value());
  Key made_for;  // not of the program's version: that is what goldens are for
  made_for.add(gguf::fingerprint(task.model->model.file()));
  made_for.add(task.tokens);
  made_for.add_number(task.n);
  made_for.add(one.checkpoints);
  made_for.add(*engine);
  const std::string golden_key = made_for.finish();
  const auto golden_place = [&](const std::string& folder) {
    return (fs::path(folder) / one.name / fmt::format("{}.trace", prompt)).string();
  };
  if (!options_.goldens.empty()) return golden(golden_place(options_.goldens), golden_key);

  const std::string folder = (folder_.path() / "reference.trace").string();
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  const auto record = [&](const std::string& place) {
    return engines_.record(*engine, task, place, failure);
  };
  Result<trace::Trace> trace = error("");
  if (cache_ && engine->kind == EngineKind::kDevice) {
    // Others' engines may change without a sign.
    trace = cache_->get(key_of_reference(one, *engine, task),
                        [&](const std::string& place) -> Result<void> {
                          LS_TRY_VOID(record(place));
                          return {};
                        });
  } else {
    LS_TRY(const Recorded recorded, record(folder));
    trace = open_recorded(recorded.folder, folder + ".unpacked");
  }
  if (!trace.ok() || options_.record_goldens.empty()) return trace;
  const std::string place = golden_place(options_.record_goldens);
  LS_TRY_VOID(copy_folder(trace->folder(), place, false));
  LS_TRY_VOID(write_text(place + ".key", golden_key + "\n"));
  return trace;
}

void Runner::make_reference(const Job& job) {
  reference_ = Reference();
  reference_.group = job.group;
  const Case& one = suite_.cases[job.case_at];
  Result<Task> task = task_of(one, one.prompts[job.prompt]);
  if (!task.ok()) {
    reference_.failure = task.error().message;
    return;
  }
  reference_.task = std::move(*task);
  Failure failure;
  Result<trace::Trace> trace = reference_trace(one, job.prompt, *reference_.task, failure);
  if (trace.ok()) {
    reference_.trace = std::move(*trace);
    return;
  }
  reference_.failure = fmt::format("the reference: {}", trace.error().message);
  reference_.output = failure.output;
}

Result<void> Runner::judge(const trace::Trace& suspect, const std::string& folder,
                           CaseResult& result) {
  const OpenModel& model = *reference_.task->model;
  const report::Diagnosing diagnosing = {options_.depth, options_.doctor_seconds, false};
  LS_TRY(report::Compared compared,
         report::compare(*reference_.trace, suspect, &model.model, model.tokenizer.get(),
                         options_.compare, diagnosing));
  fill_result(compared, result);
  if (compared.comparison.parity || options_.out.empty()) return {};
  // Once more, with what a page shows of single rows: few cases fail.
  parity::CompareOptions with_rows = options_.compare;
  with_rows.rows = true;
  with_rows.opened_bytes = report::kHtmlLimit / 2;
  LS_TRY(report::Compared shown, report::compare(*reference_.trace, suspect, &model.model,
                                                 model.tokenizer.get(), with_rows, {}));
  shown.subject.diagnoses = compared.subject.diagnoses;
  const std::string place = (fs::path(options_.out) / result.id).string();
  shown.subject.reference.path = place + "/reference.trace";
  shown.subject.suspect.path = folder;
  LS_TRY_VOID(make_parent(place));
  LS_TRY_VOID(
      write_text(place + "/report.html", report::html_report(shown.comparison, shown.subject)));
  result.report = result.id + "/report.html";
  return copy_folder(reference_.trace->folder(), place + "/reference.trace", true);
}

Result<void> Runner::run_job(const Job& job, CaseResult& result, Failure& failure) {
  const Stopwatch engine_time;
  if (reference_.group != job.group) make_reference(job);
  failure.output = reference_.output;
  if (!reference_.trace) return error("{}", reference_.failure);
  failure.output.clear();
  const std::optional<Engine> engine = suite_.engine(job.suspect);
  LS_CHECK(engine.has_value());

  const fs::path place = options_.out.empty() ? folder_.path() : fs::path(options_.out) / job.id;
  LS_TRY_VOID(make_parent(place.string()));
  const std::string folder = (place / "suspect.trace").string();
  std::error_code ignored;
  for (const char* old : {"suspect.trace", "reference.trace", "report.html", "output.txt"})
    fs::remove_all(place / old, ignored);
  const std::string unpacked = (folder_.path() / "unpacked").string();
  fs::remove_all(unpacked, ignored);

  const Result<Recorded> recorded = engines_.record(*engine, *reference_.task, folder, failure);
  result.engine_seconds = engine_time.seconds();
  if (!recorded.ok()) return recorded.error();
  const Result<trace::Trace> suspect = open_recorded(recorded->folder, unpacked);
  if (!suspect.ok()) return suspect.error();
  failure.output = recorded->output;
  return judge(*suspect, recorded->folder, result);
}

CaseResult Runner::run(const Job& job) {
  const Stopwatch time;
  const Case& one = suite_.cases[job.case_at];
  CaseResult result;
  result.id = job.id;
  result.key = job.key;
  result.index = job.index;
  result.case_name = one.name;
  result.model = one.model;
  result.prompt = shown_prompt(one.prompts[job.prompt]);
  result.reference = one.reference;
  result.suspect = job.suspect;
  Failure failure;
  const Result<void> done =
      no_throw([&]() -> Result<void> { return run_job(job, result, failure); });
  if (!done.ok()) {
    result.status = Status::kError;
    result.verdict = "error";
    result.parity = false;
    result.reason = done.error().message;
  }
  if (result.status != Status::kPassed) result.output = tail_of(failure.output);
  if (const Result<void> left = no_throw([&] { return leave(failure.output, result); }); !left.ok())
    result.reason += fmt::format(" ({})", left.error().message);
  result.seconds = time.seconds();
  return result;
}

Result<void> Runner::leave(const std::string& output, CaseResult& result) {
  if (options_.out.empty()) return {};
  const fs::path place = fs::path(options_.out) / result.id;
  std::error_code ignored;
  if (result.status == Status::kPassed) fs::remove_all(place / "suspect.trace", ignored);
  if (result.status == Status::kPassed || output.empty()) {
    // Folders that hold nothing.
    for (fs::path folder = place; folder != fs::path(options_.out); folder = folder.parent_path())
      if (!fs::remove(folder, ignored)) break;
    return {};
  }
  LS_TRY_VOID(make_parent(place.string()));
  return write_text((place / "output.txt").string(), output);
}

}  // namespace lockstep::suite
