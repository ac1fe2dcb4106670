// The launchers: each enqueues its kernel on a stream. Errors are the runtime's to tell.
#pragma once

#include <cuda_runtime_api.h>

#include "exec/cuda/calls.h"

namespace lockstep::exec::cuda {

// Reads all of it, for measuring; `out` gets a number that depends on every byte.
void run_read(const void* data, int64_t bytes, uint32_t* out, cudaStream_t stream);

void run_embed(const EmbedCall& call, cudaStream_t stream);
void run_rows(const RowsCall& call, cudaStream_t stream);
void run_matvec(const MatvecCall& call, cudaStream_t stream);
void run_matmul(const MatmulCall& call, cudaStream_t stream);
// Numbers to halves: [rows, columns] without padding.
void run_halve(const float* x, int64_t count, const Halves& out, cudaStream_t stream);
void run_halve(const WeightView& weight, const Halves& out, cudaStream_t stream);
// *out = 1 / (scale of a * scale of b)
void run_inverse_scale(const uint32_t* largest_a, const uint32_t* largest_b, float* out,
                       cudaStream_t stream);
void run_add_bias(float* x, const float* bias, int64_t rows, int64_t columns, cudaStream_t stream);
void run_attention(const AttentionCall& call, cudaStream_t stream);
// Scores and probabilities, for who watches.
void run_scores(const AttentionCall& call, cudaStream_t stream);
// The same for many tokens and positions in one span; false where heads are too long for it.
bool run_prompt_attention(const AttentionCall& call, cudaStream_t stream);

}  // namespace lockstep::exec::cuda
