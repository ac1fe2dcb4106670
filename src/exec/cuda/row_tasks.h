// Ops as what the kernels take: where the values lie, and what the ops say.
#pragma once

#include <vector>

#include "exec/cuda/calls.h"
#include "exec/cuda/weights/weights.h"
#include "exec/plan.h"
#include "exec/rope_table.h"

namespace lockstep::exec::cuda {

// Where a step's values and inputs lie on the device.
struct Buffers {
  std::vector<float*> values;  // by value: its first row; null for scores and probabilities
  const StepState* state = nullptr;
  const int32_t* token_ids = nullptr;
  std::vector<const float*> ropes;  // by table: cosines [tokens][pairs], then sines
};

// What a program needs beside its values.
struct Parts {
  const op::Program& program;
  const Weights& weights;
  std::vector<Cache> caches;    // by op
  std::vector<size_t> rope_of;  // by op: its table
  std::vector<RopeTable> ropes;
};

// An op on rows, or keys and values on their way to the cache (kAppend). All rows from `first_row`
// of `tokens`.
RowTask describe_task(const Parts& parts, const Stage::Task& task, const Buffers& buffers,
                      int64_t tokens, int64_t first_row);
EmbedCall describe_embed(const Parts& parts, const op::Op& op, const Buffers& buffers,
                         int64_t tokens, int64_t first_row);
// Ops of mixtures of experts have launches of their own.
bool is_of_experts(const op::What& what);
void launch_experts(const Parts& parts, const op::Op& op, const Buffers& buffers, int64_t tokens,
                    int64_t first_row, cudaStream_t stream);
// Without what is the launch's own: rows, splits and their memory, what is watched.
AttentionCall describe_attention(const Parts& parts, size_t op, const Buffers& buffers);

}  // namespace lockstep::exec::cuda
