#include "suite/runner.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <unistd.h>

#include "base/mapped_file.h"
#include "base/no_throw.h"
#include "base/text.h"
#include "report/compared.h"
#include "suite/judged.h"
#include "suite/trace_files.h"

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

// Texts about files of ours are the same in every run: without the folder's name, which is not.
std::string without_folder(std::string text, const fs::path& folder) {
  const std::string name = folder.string() + "/";
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at))
    text.erase(at, name.size());
  return text;
}

// The end of a text, where programs say what went wrong.
std::string tail_of(const std::string& text) {
  if (text.size() <= kMostOutput) return text;
  return "...\n" + text.substr(text.size() - kMostOutput);
}

}  // namespace

Runner::Runner(const Suite& suite, RunOptions options, TemporaryFolder folder)
    : suite_(suite),
      options_(std::move(options)),
      folder_(std::move(folder)),
      engines_(suite, options_.program, options_.cancel) {
  if (!options_.cache.empty()) cache_.emplace(options_.cache, options_.cache_bytes);
}

Result<std::unique_ptr<Runner>> Runner::create(const Suite& suite, RunOptions options) {
  // What cannot be written shows before hours of work.
  for (const std::string& place : {options.out, options.record_goldens, options.cache}) {
    if (place.empty()) continue;
    LS_TRY_VOID(make_folder(place));
    if (::access(place.c_str(), W_OK | X_OK) != 0)
      return error("{}: cannot write there: {}", printable(place), std::strerror(errno));
  }
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
  LS_TRY_VOID(make_folder(place));
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
  LS_TRY_VOID(make_folder(place.string()));
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

CaseResult Runner::give_up(const Job& job, const std::string& reason) const {
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
  result.reason = reason;
  return result;
}

CaseResult Runner::run(const Job& job) {
  const Stopwatch time;
  CaseResult result = give_up(job, "");
  Failure failure;
  const Result<void> done =
      no_throw([&]() -> Result<void> { return run_job(job, result, failure); });
  if (!done.ok()) {
    result.status = Status::kError;
    result.verdict = "error";
    result.parity = false;
    result.reason = without_folder(done.error().message, folder_.path());
  }
  if (result.status != Status::kPassed)
    result.output = tail_of(without_folder(failure.output, folder_.path()));
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
  LS_TRY_VOID(make_folder(place.string()));
  return write_text((place / "output.txt").string(), output);
}

}  // namespace lockstep::suite
