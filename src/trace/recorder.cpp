#include "trace/recorder.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <sys/resource.h>

#include "trace/checkpoints.h"
#include "trace/shard_writer.h"

namespace lockstep::trace {
namespace {

namespace fs = std::filesystem;

// What may wait to be written. Larger than a step of generation of the largest models.
constexpr int64_t kQueueBytes = 256 << 20;

// The writer takes a core from the model for a moment each time it wakes: it does so seldom, when
// this much has come together or this time has passed.
constexpr int64_t kWakeBytes = 16 << 20;
constexpr std::chrono::milliseconds kWakeTime{50};

// Values are handed to the writer together, up to this much: a lock and a call for each value of a
// small model would cost more than the value.
constexpr int64_t kBatchBytes = 1 << 20;

// Runs jobs in order on a thread of its own. Jobs carry bytes; push waits while too many are under
// way. After the first failure jobs are thrown away.
class WriteQueue {
 public:
  using Job = std::function<Result<void>()>;

  WriteQueue() : thread_([this] { work(); }) {}
  ~WriteQueue() { static_cast<void>(finish()); }

  void push(int64_t bytes, Job job) {
    std::unique_lock lock(mutex_);
    const auto fits = [&] { return queued_bytes_ == 0 || queued_bytes_ + bytes <= kQueueBytes; };
    if (!fits()) {
      wake_.notify_one();
      written_.wait(lock, fits);
    }
    queued_bytes_ += bytes;
    jobs_.push_back({bytes, std::move(job)});
    if (queued_bytes_ >= kWakeBytes) wake_.notify_one();
  }

  bool falls_behind() {
    const std::lock_guard lock(mutex_);
    return queued_bytes_ > kQueueBytes / 2;
  }

  // Waits until everything is written.
  Result<void> finish() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      wake_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    return failure_ ? Result<void>(*failure_) : Result<void>();
  }

 private:
  struct Item {
    int64_t bytes;
    Job job;
  };

  void work() {
    // Woken with the model's priority, the writer would push one of its threads to another's core,
    // where both then wait for each other. (On Linux this sets the calling thread's alone.)
    static_cast<void>(::setpriority(PRIO_PROCESS, 0, 10));
    std::unique_lock lock(mutex_);
    while (true) {
      while (jobs_.empty() && !closed_) wake_.wait_for(lock, kWakeTime);
      if (jobs_.empty()) return;
      Item item = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      if (!failure_)
        if (Result<void> outcome = item.job(); !outcome.ok()) failure_ = outcome.error();
      item.job = nullptr;  // its bytes go before the count of them does
      lock.lock();
      queued_bytes_ -= item.bytes;
      written_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, written_;
  std::deque<Item> jobs_;
  int64_t queued_bytes_ = 0;
  bool closed_ = false;
  std::optional<Error> failure_;  // written by the thread only, read after the join
  std::thread thread_;            // last: starts when all else is there
};

Result<void> make_folder(const std::string& folder) {
  std::error_code failed;
  if (fs::exists(folder, failed)) {
    if (!fs::is_directory(folder, failed)) return error("{}: exists and is no folder", folder);
    if (!fs::is_empty(folder, failed) || failed)
      return error("{}: exists and is not empty; a trace is never written over", folder);
    return {};
  }
  if (!fs::create_directories(folder, failed) || failed)
    return error("{}: cannot create the folder: {}", folder, failed.message());
  return {};
}

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
  void hand_over(std::optional<bool> whole) {
    std::optional<StepInfo> begin;
    if (!std::exchange(announced, true)) begin = step;
    queue.push(std::exchange(piece_bytes, 0),
               [this, begin = std::move(begin), batch = std::exchange(pieces, {}),
                whole]() mutable -> Result<void> {
                 if (begin) LS_TRY_VOID(writer.begin_step(*begin, plans_of(*begin)));
                 for (Piece& piece : batch)
                   LS_TRY_VOID(writer.put(piece.plan, std::move(piece.bytes)));
                 return whole ? writer.end_step(*whole) : Result<void>();
               });
  }

  const op::Program& program;
  const DType dtype;
  const RecordOptions options;
  ShardWriter writer;               // but for its buffers, touched by the queue's thread only
  std::vector<op::ValueId> chosen;  // in order of the program
  std::vector<int64_t> plan_of;     // by value: place in `chosen`, or -1
  int64_t steps = 0;
  int64_t dropped = 0;
  // Of the current step.
  bool recording = false;
  StepInfo step;
  bool announced = false;  // the writer knows of it
  std::vector<Piece> pieces;
  int64_t piece_bytes = 0;
  WriteQueue queue;  // last: its jobs use the rest
};

Result<std::unique_ptr<Recorder>> Recorder::create(const op::Program& program, DType dtype,
                                                   const RecordOptions& options,
                                                   const Manifest& start) {
  LS_TRY(std::vector<op::ValueId> chosen, select_checkpoints(program, options.checkpoints));
  LS_TRY_VOID(make_folder(options.folder));
  Manifest manifest = start;
  for (const op::ValueId id : chosen)
    manifest.checkpoints.push_back({program.value(id).name, dtype, program.value(id).width});
  ShardWriter writer(options.folder, std::move(manifest));
  LS_TRY_VOID(writer.start());
  auto state = std::make_unique<State>(program, dtype, options, std::move(writer));
  for (size_t i = 0; i < chosen.size(); ++i)
    state->plan_of[static_cast<size_t>(chosen[i])] = static_cast<int64_t>(i);
  state->chosen = std::move(chosen);
  return std::unique_ptr<Recorder>(new Recorder(std::move(state)));
}

Recorder::Recorder(std::unique_ptr<State> state) : state_(std::move(state)) {}

Recorder::~Recorder() {
  state_->queue.push(0, [state = state_.get()] { return state->writer.flush(); });
}

void Recorder::begin_step(int64_t first_position, int64_t tokens) {
  State& state = *state_;
  state.step = {state.steps++, first_position, tokens, ""};
  state.announced = false;
  state.recording = !(state.options.drop_when_slow && state.queue.falls_behind());
  if (!state.recording) ++state.dropped;
}

bool Recorder::wants(op::ValueId id) const {
  return state_->recording && state_->plan_of[static_cast<size_t>(id)] >= 0;
}

bool Recorder::wants_all_logits() const {
  const auto logits = static_cast<size_t>(state_->program.logits());
  return state_->plan_of[logits] >= 0 && !state_->options.last_logits;
}

void Recorder::see(op::ValueId id, const exec::View& view) {
  LS_CHECK(view.dtype == state_->dtype);
  const auto plan = static_cast<size_t>(state_->plan_of[static_cast<size_t>(id)]);
  const auto* data = static_cast<const std::byte*>(view.data);
  const int64_t size = view.size() * size_bytes(view.dtype);
  // With last_logits the executor may still have computed all rows.
  const bool last_row = id == state_->program.logits() && state_->options.last_logits;
  const int64_t kept = last_row ? view.shape.back() * size_bytes(view.dtype) : size;
  state_->pieces.push_back(
      {plan, state_->writer.buffers().copy({data + size - kept, static_cast<size_t>(kept)})});
  state_->piece_bytes += kept;
  if (state_->piece_bytes >= kBatchBytes) state_->hand_over(std::nullopt);
}

void Recorder::end_step(bool whole) {
  if (!state_->recording) return;
  state_->recording = false;
  state_->hand_over(whole);
}

Result<void> Recorder::finish(const std::vector<int32_t>& tokens) {
  state_->queue.push(
      0, [state = state_.get(), tokens] { return state->writer.finish(tokens, state->dropped); });
  return state_->queue.finish();
}

}  // namespace lockstep::trace
