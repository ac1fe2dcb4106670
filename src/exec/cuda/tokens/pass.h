// The forward pass of one token, as generation needs it: few launches a layer, each of which does
// what it can before and after its main work, captured as one graph. Every value has a place of its
// own and stays there until the next token, so that watching is looking afterwards.
#pragma once

#include <variant>

#include "exec/cuda/row_tasks.h"
#include "exec/cuda/shared/graphs.h"
#include "exec/cuda/shared/stream.h"
#include "exec/cuda/tokens/calls.h"

namespace lockstep::exec::cuda {

class TokenPass {
 public:
  // Null where this GPU lacks what the kernels need, or the program has a shape that they do not
  // take. `parts` must outlive it.
  static Result<std::unique_ptr<TokenPass>> create(Parts& parts, const Plan& plan);
  ~TokenPass() { cudaStreamSynchronize(copies_); }

  // A token that the pass enqueued before has yet to choose: that of its largest logit. Not where
  // `chooses` is false.
  static constexpr TokenId kChosen = -1;
  bool chooses() const { return best_count_ > 0; }

  // Enqueues a pass, and fills the rope tables for its position. Its number is good until the pass
  // after the next is started.
  Result<int> start(TokenId token, int64_t position, cudaStream_t stream);
  // The values that passes from now on bring to the host, beside the logits; none are scores. False
  // where these are the ones already. Passes that were started before are over then.
  Result<bool> keep(const std::vector<op::ValueId>& values, cudaStream_t stream);
  const std::vector<op::ValueId>& kept() const { return kept_; }
  // On the host, once the pass is over; by its number in kept().
  const float* kept(int pass, size_t number) const {
    return sides_[pass].kept.as<float>(kept_places_[number] * 4);
  }
  Result<void> wait(int pass) const;
  // On the host, once the pass is over.
  const float* logits(int pass) const { return sides_[pass].logits.as<float>(); }
  TokenId chosen(int pass) const;
  // The same for all passes.
  const Buffers& buffers() const { return buffers_; }
  // Runs the attention that `watched` describes once more, from what is still in its place, so that
  // it keeps its scores.
  void keep_scores(const AttentionCall& watched, int64_t position, cudaStream_t stream) const;

 private:
  using Launch = std::variant<EmbedCall, RowsCall, TokenProducts, TokenAttention>;
  class Builder;

  // What the host and a pass hand each other, so that one pass can be on its way while the results
  // of the one before are in use.
  struct Side {
    PinnedMemory inputs;  // of a token, as they will lie on the device
    float* device_logits = nullptr;
    PinnedMemory logits;  // [vocabulary], copied while the next pass runs
    PinnedMemory best;    // [best_count_] of the logits
    DeviceMemory device_kept;
    PinnedMemory kept;  // as it lies on the device
    Event computed, done;
  };

  explicit TokenPass(Parts& parts) : parts_(parts) {}
  Result<void> allocate();
  bool build(const Plan& plan, int multiprocessors);  // false: a shape that the kernels do not take
  Result<void> choose_tokens();
  Result<void> enqueue(int pass, int64_t splits, cudaStream_t stream);

  Parts& parts_;
  DeviceMemory memory_;
  Stream copies_;
  Side sides_[2];
  int next_ = 0;
  Buffers buffers_;
  int64_t token_place_ = 0;  // within the inputs
  std::vector<int64_t> rope_places_;
  std::byte* device_inputs_ = nullptr;
  float* attention_parts_ = nullptr;
  uint32_t* arrived_ = nullptr;
  std::vector<Launch> launches_;
  DeviceMemory best_;
  int best_count_ = 0;
  std::vector<op::ValueId> kept_;
  std::vector<int64_t> kept_places_;
  DeviceMemory kept_values_;  // KeptValue of each
  Graphs graphs_;
};

// Spans of attention in use with so many positions, rounded up to a power of two so that few
// graphs serve all positions.
int64_t splits_for(int64_t positions);

}  // namespace lockstep::exec::cuda
