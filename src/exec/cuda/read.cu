// Reading memory and nothing else.
#include "exec/cuda/kernels.h"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = 512, kBlocks = 132 * 8, kAtOnce = 4;

__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* data, int64_t count, uint32_t* out) {
  uint32_t mixed = 0;
  const int64_t stride = int64_t{gridDim.x} * kThreads * kAtOnce;
  for (int64_t i = int64_t{blockIdx.x} * kThreads * kAtOnce + threadIdx.x; i < count; i += stride) {
    uint4 loaded[kAtOnce] = {};
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      if (i + k * kThreads < count) loaded[k] = __ldcs(data + i + k * kThreads);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      mixed ^= loaded[k].x ^ loaded[k].y ^ loaded[k].z ^ loaded[k].w;
  }
  if (mixed == 0x12345678u) *out = mixed;  // so that nothing is left out
}

}  // namespace

void run_read(const void* data, int64_t bytes, uint32_t* out, cudaStream_t stream) {
  read_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const uint4*>(data), bytes / 16, out);
}

}  // namespace lockstep::exec::cuda
