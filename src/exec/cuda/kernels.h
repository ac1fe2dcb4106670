// The launchers: each enqueues its kernel on a stream. Errors are the runtime's to tell.
#pragma once

#include <cuda_runtime_api.h>

#include "exec/cuda/calls.h"

namespace lockstep::exec::cuda {

// Whether the kernels are the machine code for 9.0. For other GPUs the driver makes code of PTX for
// 7.5, where what asks for more (__CUDA_ARCH__) is left out. All are compiled alike, so one kernel
// is asked; it is asked first where no launches are being captured.
bool made_for_hopper();

// Reads all of it, for measuring; `out` gets a number that depends on every byte.
void run_read(const void* data, int64_t bytes, uint32_t* out, cudaStream_t stream);

void run_embed(const EmbedCall& call, cudaStream_t stream);
void run_rows(const RowsCall& call, cudaStream_t stream);
void run_route(const RouteCall& call, cudaStream_t stream);
void run_experts(const ExpertsCall& call, cudaStream_t stream);
void run_mix(const MixCall& call, cudaStream_t stream);
void run_matvec(const MatvecCall& call, cudaStream_t stream);
void run_matmul(const MatmulCall& call, cudaStream_t stream);
// Raises `largest` to the bits of the weight's largest magnitude.
void run_largest(const WeightView& weight, uint32_t* largest, cudaStream_t stream);
void run_halve(const WeightView& weight, const WeightHalves& out, cudaStream_t stream);
void run_fit_rows(const FitRowsCall& call, cudaStream_t stream);
void run_halve_rows(const HalveRowsCall& call, cudaStream_t stream);
// Sorts rows by expert, and cuts them into tiles.
void run_group(const GroupCall& call, cudaStream_t stream);
// Whether the tensor cores of this GPU take such weights.
bool can_run_expert_products(quant::Format format);
void run_expert_products(const ExpertProductsCall& call, cudaStream_t stream);
void run_attention(const AttentionCall& call, cudaStream_t stream);
// Probabilities of the scores that are kept, and scores of what is not seen, for who watches.
void run_probs(const AttentionCall& call, cudaStream_t stream);
// The same for many tokens and positions in one span; false where heads have a size that they do
// not take. The first needs tensor cores.
bool run_tensor_attention(const AttentionCall& call, cudaStream_t stream);
bool run_prompt_attention(const AttentionCall& call, cudaStream_t stream);

}  // namespace lockstep::exec::cuda
