#include "lab.h"

#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "base/random.h"
#include "forge/forge.h"
#include "gguf/fingerprint.h"
#include "trace/recorder.h"

namespace lockstep::engines {
namespace {

namespace fs = std::filesystem;

template <class T>
T must(Result<T> result) {
  LS_CHECK(result.ok(), "{}", result.error().message);
  return std::move(*result);
}

// Passes on only what comes from a position on.
class From : public op::Observer {
 public:
  From(op::Observer& next, int64_t position) : next_(next), position_(position) {}
  void begin_step(int64_t first, int64_t tokens) override {
    on_ = first >= position_;
    if (on_) next_.begin_step(first, tokens);
  }
  bool wants(op::ValueId id) const override { return on_ && next_.wants(id); }
  void see(op::ValueId id, const View& view) override { next_.see(id, view); }
  void end_step(bool whole) override {
    if (on_) next_.end_step(whole);
  }

 private:
  op::Observer& next_;
  int64_t position_;
  bool on_ = false;
};

}  // namespace

Scratch::Scratch() {
  // Traces are synced to the disk; thousands of small ones go to memory where there is a place.
  const fs::path memory = "/dev/shm";
  const fs::path place = fs::is_directory(memory) ? memory : fs::temp_directory_path();
  std::string pattern = (place / "engines_XXXXXX").string();
  LS_CHECK(mkdtemp(pattern.data()) != nullptr);
  folder_ = pattern;
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string Scratch::next() {
  return (folder_ / std::to_string(++count_)).string();
}

Lab Lab::forged(const forge::Spec& spec) {
  auto scratch = std::make_shared<Scratch>();
  const std::string path = scratch->next();
  const auto outcome = forge::write_model(spec, path);
  LS_CHECK(outcome.ok(), "{}", outcome.error().message);
  Lab lab(must(model::Model::load(path)));
  lab.scratch_ = scratch;
  return lab;
}

Lab Lab::shipped(const std::string& name) {
  return Lab(must(model::Model::load(fmt::format("{}/{}", LOCKSTEP_MODELS, name))));
}

op::Program Lab::program(const Job& run) const {
  return must(model_.program(static_cast<int64_t>(run.tokens.size())));
}

trace::Trace Lab::record(const Job& run, const Style& style, const op::Program& program,
                         std::span<const Quirk> quirks, const op::Deviations& deviations) {
  const auto engine = make_engine(program, style, quirks, deviations);
  trace::Manifest start;
  start.engine.name = style.name;
  start.engine.precision = precision_of(style);
  start.model.architecture = model_.config().arch->name;
  start.model.fingerprint = gguf::fingerprint(model_.file());
  start.tokens = run.tokens;
  start.prompt_tokens = run.prompt;
  const std::string folder = scratch_->next();
  const auto recorder = must(trace::Recorder::create(
      program, engine->dtype(), {.folder = folder, .checkpoints = run.checkpoints}, start));
  From observer(*recorder, run.recorded_from);
  const std::span<const int32_t> tokens = run.tokens;
  const auto prompt = static_cast<size_t>(run.prompt);
  const auto step = [&](std::span<const int32_t> some) {
    must(engine->run({.tokens = some, .all_logits = true, .observer = &observer}));
  };
  step(tokens.first(prompt));
  for (size_t i = prompt; i < tokens.size(); ++i) step(tokens.subspan(i, 1));
  const auto outcome = recorder->finish(run.tokens);
  LS_CHECK(outcome.ok(), "{}", outcome.error().message);
  return must(trace::Trace::open(folder));
}

trace::Trace Lab::record(const Job& run, const Style& style, const Patient& patient) {
  return record(run, style, patient.program(), patient.quirks,
                patient.altered.forward().deviations);
}

parity::Comparison Lab::compare(const trace::Trace& reference, const trace::Trace& suspect) const {
  parity::CompareOptions options;
  options.threads = 1;
  return must(parity::compare(reference, suspect, &model_, options));
}

std::string first_reached(const op::Program& program, op::ValueId wrong,
                          const trace::Trace& trace) {
  std::set<op::ValueId> reached = {wrong};
  for (const op::Op& op : program.ops) {
    bool any = false;
    for (const op::ValueId id : op.inputs) any = any || reached.contains(id);
    // Scores, then probabilities, then the mix.
    std::vector<op::ValueId> outputs = op.outputs;
    if (outputs.size() == 3) std::rotate(outputs.begin(), outputs.begin() + 1, outputs.end());
    for (const op::ValueId id : outputs) {
      any = any || reached.contains(id);
      if (!any) continue;
      reached.insert(id);
      if (trace.has(program.value(id).name)) return program.value(id).name;
    }
  }
  return "";
}

std::vector<int32_t> random_tokens(uint64_t seed, int64_t count, int64_t vocabulary) {
  Random random(seed);
  std::vector<int32_t> tokens;
  while (static_cast<int64_t>(tokens.size()) < count) {
    const auto token = static_cast<int32_t>(random.below(vocabulary));
    if (tokens.empty() || tokens.back() != token) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace lockstep::engines
