#include "trace/recorder.h"

#include <chrono>
#include <optional>
#include <utility>

#include "base/no_throw.h"
#include "trace/checkpoints.h"
#include "trace/shard_writer.h"
#include "trace/write_queue.h"

namespace lockstep::trace {
namespace {

// Values are handed to the writer together, up to this much: a lock and a call for each value of a
// small model would cost more than the value.
constexpr int64_t kBatchBytes = 1 << 20;

}  // namespace

struct Recorder::State {
  State(const op::Program& p, DType d, const RecordOptions& o, ShardWriter w)
      : program(p), dtype(d), options(o), writer(std::move(w)), plan_of(p.values.size(), -1) {}

  struct Piece {
    size_t plan;  // place in `chosen`
    Buffer bytes;
  };

  // On the queue's thread: what the writer will be given of a step.
  std::vector<StoredPlan> plans_of(const StepInfo& info) const {
    std::vector<StoredPlan> plans;
    for (const op::ValueId id : chosen) {
      const op::Value& value = program.value(id);
      StoredPlan plan{
          fmt::format("{}/{}", info.index, value.name), dtype, {info.tokens, value.width}};
      if (value.shape == op::Value::Shape::kScores)
        plan.shape = {value.width, info.tokens, info.first_position + info.tokens};
      else if (id == program.logits() && options.last_logits)
        plan.shape = {1, value.width};
      plans.push_back(std::move(plan));
    }
    return plans;
  }

  // Gives the writer what has come together. `whole`: of the step, where this ends it.
  Result<void> hand_over(std::optional<bool> whole) {
    std::optional<StepInfo> begin;
    if (!std::exchange(announced, true)) begin = step;
    queue.push(std::exchange(piece_bytes, 0),
               [this, begin = std::move(begin), batch = std::exchange(pieces, {}),
                whole]() mutable -> Result<void> {
                 if (begin) LS_TRY_VOID(writer.begin_step(*begin, plans_of(*begin)));
                 for (Piece& piece : batch)
                   LS_TRY_VOID(writer.put(piece.plan, std::move(piece.bytes)));
                 return whole ? writer.end_step(*whole, queue.waiting_bytes()) : Result<void>();
               });
    return {};
  }

  // What an executor shows is not ours: whatever it is, it ends the recording at most.
  Result<void> take(op::ValueId id, const View& view) {
    const std::string& name = program.value(id).name;
    const int64_t plan = plan_of[static_cast<size_t>(id)];
    if (plan < 0) return error("{}: came without being asked for", name);
    if (view.dtype != dtype)
      return error("{}: found numbers of type {}, expected {}", name, lockstep::name(view.dtype),
                   lockstep::name(dtype));
    const auto* data = static_cast<const std::byte*>(view.data);
    const int64_t size = view.size() * size_bytes(view.dtype);
    // With last_logits the executor may still have computed all rows.
    const bool last_row = id == program.logits() && options.last_logits;
    const int64_t kept =
        last_row ? std::min(size, program.value(id).width * size_bytes(view.dtype)) : size;
    pieces.push_back({static_cast<size_t>(plan),
                      writer.buffers().copy({data + size - kept, static_cast<size_t>(kept)})});
    piece_bytes += kept;
    return piece_bytes >= kBatchBytes ? hand_over(std::nullopt) : Result<void>();
  }

  // The first failure ends the recording, never what is recorded.
  template <class Body>
  void guarded(const Body& body) noexcept {
    if (!outcome.ok()) return;
    if (outcome = no_throw(body); !outcome.ok()) {
      pieces.clear();
      piece_bytes = 0;
    }
  }

  const op::Program& program;
  const DType dtype;
  const RecordOptions options;
  ShardWriter writer;               // but for its buffers, touched by the queue's thread only
  std::vector<op::ValueId> chosen;  // in order of the program
  std::vector<int64_t> plan_of;     // by value: place in `chosen`, or -1
  int64_t steps = 0;
  int64_t dropped = 0;
  bool finished = false;
  // Of the current step.
  bool recording = false;
  StepInfo step;
  bool announced = false;  // the writer knows of it
  std::vector<Piece> pieces;
  int64_t piece_bytes = 0;
  Result<void> outcome;  // on the model's thread; the queue has its own
  WriteQueue queue;      // last: its jobs use the rest
};

Result<std::unique_ptr<Recorder>> Recorder::create(const op::Program& program, DType dtype,
                                                   const RecordOptions& options,
                                                   const Manifest& start) {
  std::unique_ptr<Recorder> recorder;
  LS_TRY_VOID(no_throw([&]() -> Result<void> {
    LS_TRY(recorder, begin(program, dtype, options, start));
    return {};
  }));
  return recorder;
}

Result<std::unique_ptr<Recorder>> Recorder::begin(const op::Program& program, DType dtype,
                                                  const RecordOptions& options,
                                                  const Manifest& start) {
  LS_TRY(std::vector<op::ValueId> chosen, select_checkpoints(program, options.checkpoints));
  Manifest manifest = start;
  for (const op::ValueId id : chosen)
    manifest.checkpoints.push_back({program.value(id).name, dtype, program.value(id).width});
  auto state = std::make_unique<State>(
      program, dtype, options, ShardWriter(options.folder, std::move(manifest), options.durable));
  for (size_t i = 0; i < chosen.size(); ++i)
    state->plan_of[static_cast<size_t>(chosen[i])] = static_cast<int64_t>(i);
  state->chosen = std::move(chosen);
  LS_TRY_VOID(state->queue.start());
  LS_TRY_VOID(state->writer.start());
  return std::unique_ptr<Recorder>(new Recorder(std::move(state)));
}

Recorder::Recorder(std::unique_ptr<State> state) : state_(std::move(state)) {}

Recorder::~Recorder() {
  if (state_->finished) return;
  static_cast<void>(state_->queue.finish());
  static_cast<void>(no_throw([&] { return state_->writer.flush(); }));
}

void Recorder::begin_step(int64_t first_position, int64_t tokens) {
  State& state = *state_;
  state.recording = false;
  if (!state.outcome.ok() || state.queue.failed()) return;  // nothing more is copied in vain
  state.step = {state.steps++, first_position, tokens, ""};
  state.announced = false;
  state.recording = !(state.options.drop_when_slow && state.queue.falls_behind());
  if (!state.recording) ++state.dropped;
}

bool Recorder::wants(op::ValueId id) const {
  return state_->recording && state_->plan_of[static_cast<size_t>(id)] >= 0;
}

double Recorder::waited() const {
  return std::chrono::duration<double>(state_->queue.waited()).count();
}

bool Recorder::wants_all_logits() const {
  const auto logits = static_cast<size_t>(state_->program.logits());
  return state_->plan_of[logits] >= 0 && !state_->options.last_logits;
}

void Recorder::see(op::ValueId id, const View& view) {
  state_->guarded([&] { return state_->take(id, view); });
}

void Recorder::end_step(bool whole) {
  if (!std::exchange(state_->recording, false)) return;
  state_->guarded([&] { return state_->hand_over(whole); });
}

Result<void> Recorder::finish(const std::vector<int32_t>& tokens, bool complete) {
  State& state = *state_;
  state.finished = true;
  state.guarded([&]() -> Result<void> {
    state.queue.push(0, [&] { return state.writer.finish(tokens, state.dropped, complete); });
    return {};
  });
  Result<void> written = state.queue.finish();
  if (state.outcome.ok() && written.ok()) return {};
  state.writer.give_up();
  return std::move(state.outcome.ok() ? written : state.outcome);
}

}  // namespace lockstep::trace
