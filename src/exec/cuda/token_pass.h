// The forward pass of one token, as generation needs it: few launches a layer, each of which does
// what it can before and after its main work, captured as one graph. Every value has a place of its
// own and stays there until the next token, so that watching is looking afterwards.
#pragma once

#include <variant>

#include "exec/cuda/graphs.h"
#include "exec/cuda/row_tasks.h"
#include "exec/cuda/token_calls.h"

namespace lockstep::exec::cuda {

class TokenPass {
 public:
  // Null where this GPU lacks what the kernels need, or the program has a shape that they do not
  // take. `parts` must outlive it.
  static Result<std::unique_ptr<TokenPass>> create(const Parts& parts, const Plan& plan);

  // Enqueues the pass; the rope tables are filled for the position.
  Result<void> run(TokenId token, int64_t position, cudaStream_t stream);

  const float* logits() const { return logits_.as<float>(); }  // on the host, after the stream
  const Buffers& buffers() const { return buffers_; }

 private:
  using Launch = std::variant<EmbedCall, RowsCall, TokenProducts, TokenAttention>;
  class Builder;

  explicit TokenPass(const Parts& parts) : parts_(parts) {}
  Result<void> allocate();
  Result<void> plan_fetches();
  Result<void> enqueue(int64_t splits, cudaStream_t stream);

  const Parts& parts_;
  DeviceMemory memory_;
  PinnedMemory inputs_;  // of a token, as they will lie on the device
  PinnedMemory logits_;  // [vocabulary], written by the device
  Buffers buffers_;
  int64_t token_place_ = 0;  // within the inputs
  std::vector<int64_t> rope_places_;
  std::byte* device_inputs_ = nullptr;
  float* attention_parts_ = nullptr;
  uint32_t* arrived_ = nullptr;
  std::vector<Launch> launches_;
  DeviceMemory fetches_;  // tables for the products
  Graphs graphs_;
};

// Spans of attention in use with so many positions, rounded up to a power of two so that few
// graphs serve all positions.
int64_t splits_for(int64_t positions);

}  // namespace lockstep::exec::cuda
