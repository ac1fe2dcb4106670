#include "exec/cuda/watching.h"

#include <algorithm>

namespace lockstep::exec::cuda {
namespace {

// Pinned memory for what is watched, unless a single value is larger.
constexpr int64_t kMostPinned = 256 << 20;

}  // namespace

Watching::Watching(const op::Program& program, const Plan& plan, Stream copies)
    : program_(program), plan_(plan), copies_(std::move(copies)), slots_(plan.slot_widths.size()) {}

Result<void> Watching::begin(const Step& step, int64_t first_position, bool token_pass) {
  LS_TRY_VOID(settle());  // what a step that failed has left
  observer_ = step.observer;
  token_pass_ = token_pass;
  first_position_ = first_position;
  tokens_ = static_cast<int64_t>(step.tokens.size());
  wanted_.clear();
  used_ = {};
  if (observer_ == nullptr) return {};
  Layout all;
  int64_t scores_bytes = 0, largest = 0;
  for (const op::Op& op : program_.ops)
    for (const op::ValueId id : op.outputs) {
      const op::Value& value = program_.value(id);
      if (!wants(id) || (id == program_.logits() && token_pass)) continue;
      Wanted wanted{id, {tokens_, value.width}, tokens_ * value.width * 4};
      if (value.shape == op::Value::Shape::kScores) {
        wanted.shape = {value.width, tokens_, first_position + tokens_};
        wanted.bytes *= first_position + tokens_;
        scores_bytes = std::max(scores_bytes, 2 * wanted.bytes);
      } else if (id == program_.logits() && !step.all_logits) {
        wanted.shape = {1, value.width};
        wanted.bytes = value.width * 4;
      }
      all.place(wanted.bytes);
      largest = std::max(largest, wanted.bytes);
      wanted_.push_back(std::move(wanted));
    }
  const int64_t room = std::min(all.bytes(), std::max(kMostPinned, largest));
  if (results_.size_bytes() < room) {
    results_ = {};
    LS_TRY(results_, PinnedMemory::allocate(room));
  }
  if (scores_.size_bytes() < scores_bytes) {
    scores_ = {};
    LS_TRY(scores_, DeviceMemory::allocate(scores_bytes));
  }
  if (computed_ == nullptr) {
    LS_TRY(computed_, Event::create());
  }
  return {};
}

Result<void> Watching::place_scores(AttentionCall& call, cudaStream_t stream) {
  call.positions = first_position_ + tokens_;
  call.scores = scores_.as<float>();
  call.probs = call.scores + call.heads * tokens_ * call.positions;
  return scores_reused_.wait(stream);
}

Result<void> Watching::before(std::span<const size_t> ops, cudaStream_t stream) {
  for (const size_t op : ops)
    for (const op::ValueId id : program_.ops[op].outputs)
      if (plan_.slot_of[static_cast<size_t>(id)] >= 0) LS_TRY_VOID(memory_of(id).wait(stream));
  return {};
}

Result<void> Watching::copy(std::span<const size_t> ops, const Buffers& buffers,
                            cudaStream_t stream) {
  bool waits = false;
  for (const size_t index : ops) {
    const op::Op& op = program_.ops[index];
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const op::ValueId id = op.outputs[i];
      const auto wanted = std::ranges::find(wanted_, id, &Wanted::id);
      if (wanted == wanted_.end()) continue;
      if (!waits) {
        LS_TRY_VOID(check(cudaEventRecord(computed_, stream), "cudaEventRecord"));
        LS_TRY_VOID(check(cudaStreamWaitEvent(copies_, computed_), "cudaStreamWaitEvent"));
        waits = true;
      }
      const float* from = scores_.as<float>();
      if (i == 0)
        from = buffers.values[static_cast<size_t>(id)] +
               (tokens_ - wanted->shape[0]) * program_.value(id).width;
      else
        from += static_cast<int64_t>(i - 1) * wanted->bytes / 4;
      LS_TRY_VOID(copy(*wanted, from));
      if (!token_pass_ || i > 0) LS_TRY_VOID(memory_of(id).mark(copies_));
    }
  }
  return {};
}

Result<void> Watching::copy(Wanted& wanted, const float* from) {
  if (used_.bytes() + wanted.bytes > results_.size_bytes()) LS_TRY_VOID(show());
  wanted.place = used_.place(wanted.bytes);
  busy_ = true;
  return check(cudaMemcpyAsync(results_.data() + wanted.place, from,
                               static_cast<size_t>(wanted.bytes), cudaMemcpyDeviceToHost, copies_),
               "cudaMemcpyAsync of " + program_.value(wanted.id).name);
}

Result<void> Watching::settle() {
  if (!std::exchange(busy_, false)) return {};
  for (Reused& slot : slots_) slot.pending = false;
  scores_reused_.pending = false;
  return check(cudaStreamSynchronize(copies_), "copying what is watched");
}

Result<void> Watching::show() {
  LS_TRY_VOID(settle());
  for (Wanted& wanted : wanted_) {
    if (wanted.place < 0) continue;
    observer_->see(wanted.id, {DType::kF32, results_.data() + wanted.place, wanted.shape});
    wanted.place = -1;
  }
  used_ = {};
  return {};
}

Result<void> Watching::Reused::wait(cudaStream_t stream) {
  if (!std::exchange(pending, false)) return {};
  return check(cudaStreamWaitEvent(stream, copied), "cudaStreamWaitEvent");
}

Result<void> Watching::Reused::mark(cudaStream_t copies) {
  if (copied == nullptr) {
    LS_TRY(copied, Event::create());
  }
  pending = true;
  return check(cudaEventRecord(copied, copies), "cudaEventRecord");
}

}  // namespace lockstep::exec::cuda
