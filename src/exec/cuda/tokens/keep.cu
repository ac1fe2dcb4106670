// What is watched of a token, put side by side before the next token takes its place.
#include "exec/cuda/tokens/calls.h"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksOfAValue = 4;

__global__ void keep_kernel(const __grid_constant__ KeepCall call) {
  const KeptValue value = call.values[blockIdx.x];
  for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < value.count;
       i += kThreads * kBlocksOfAValue)
    call.out[value.place + i] = value.from[i];
}

}  // namespace

void run_keep(const KeepCall& call, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(call.count), kBlocksOfAValue);
  keep_kernel<<<grid, kThreads, 0, stream>>>(call);
}

}  // namespace lockstep::exec::cuda
