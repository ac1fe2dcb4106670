// What an observer sees of a step: copied to the host by a stream of its own, while the kernels go
// on.
#pragma once

#include <span>

#include "exec/cuda/row_tasks.h"
#include "exec/cuda/shared/stream.h"
#include "exec/executor.h"

namespace lockstep::exec::cuda {

class Watching {
 public:
  // Both must outlive it. Kernels that share memory by `plan` do so on one stream.
  Watching(const op::Program& program, const Plan& plan, Stream copies);
  ~Watching() { cudaStreamSynchronize(copies_); }

  // For a step from `first_position` on, whose observer may be null: finds what it wants, and makes
  // room for it. `token_pass`: every value has a place of its own, and the logits are not ours.
  Result<void> begin(const Step& step, int64_t first_position, bool token_pass);
  bool wants(op::ValueId id) const { return observer_ != nullptr && observer_->wants(id); }

  // Gives an attention room for its scores and probabilities.
  Result<void> place_scores(AttentionCall& call, cudaStream_t stream);
  // Before kernels write to where these ops have their outputs: they may still have to be copied.
  Result<void> before(std::span<const size_t> ops, cudaStream_t stream);
  // Starts copying what is wanted of what the kernels so far have written. Where pinned memory is
  // full, what has been copied is shown first.
  Result<void> copy(std::span<const size_t> ops, const Buffers& buffers, cudaStream_t stream);
  // Shows all that has been copied since the last time, in the order of the ops.
  Result<void> show();

 private:
  // A value on its way to the host.
  struct Wanted {
    op::ValueId id;
    std::vector<int64_t> shape;
    int64_t bytes;
    int64_t place = -1;  // in pinned memory, from when it is copied until it is shown
  };
  // Memory that kernels use again, once what it held has been copied.
  struct Reused {
    Event copied;
    bool pending = false;
    Result<void> wait(cudaStream_t stream);
    Result<void> mark(cudaStream_t copies);
  };

  Result<void> settle();
  Result<void> copy(Wanted& wanted, const float* from);
  Reused& memory_of(op::ValueId id) {
    const int slot = plan_.slot_of[static_cast<size_t>(id)];
    return slot < 0 ? scores_reused_ : slots_[static_cast<size_t>(slot)];
  }

  const op::Program& program_;
  const Plan& plan_;
  Stream copies_;
  Event computed_;
  bool busy_ = false;  // whether there may be copies on their way
  std::vector<Reused> slots_;
  Reused scores_reused_;
  PinnedMemory results_;
  DeviceMemory scores_;  // of one attention, then its probabilities

  // Of the current step.
  op::Observer* observer_ = nullptr;
  int64_t first_position_ = 0, tokens_ = 0;
  bool token_pass_ = false;
  std::vector<Wanted> wanted_;  // in the order of the ops
  Layout used_;                 // of the results
};

}  // namespace lockstep::exec::cuda
