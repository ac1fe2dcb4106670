// Where a group's reference trace comes from: goldens, the cache, or an engine.
#include <filesystem>

#include "base/mapped_file.h"
#include "base/text.h"
#include "gguf/fingerprint.h"
#include "suite/key.h"
#include "suite/runner.h"
#include "suite/trace_files.h"

namespace lockstep::suite {

namespace fs = std::filesystem;

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

}  // namespace lockstep::suite
