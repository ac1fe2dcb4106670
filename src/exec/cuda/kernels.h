// The launchers: each enqueues its kernel on a stream. Errors are the runtime's to tell.
#pragma once

#include <cuda_runtime_api.h>

#include "exec/cuda/calls.h"

namespace lockstep::exec::cuda {

void run_rows(const RowsCall& call, cudaStream_t stream);
void run_matvec(const MatvecCall& call, cudaStream_t stream);
void run_matmul(const MatmulCall& call, cudaStream_t stream);
void run_attention(const AttentionCall& call, cudaStream_t stream);
// All rows of a weight as floats: [rows, columns].
void run_decode(const WeightView& weight, float* out, int64_t first_row, int64_t rows,
                cudaStream_t stream);

}  // namespace lockstep::exec::cuda
