// Sums and maxima over the threads of a block or a warp, always in the same order.
#pragma once

#include <cstdint>

namespace lockstep::exec::cuda {
namespace {

constexpr int kWarp = 32;

__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

__device__ inline float warp_max(float value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
  return value;
}
__device__ inline uint64_t warp_max(uint64_t value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    value = max(value, __shfl_xor_sync(~0u, value, step));
  return value;
}

// The largest magnitude. What is not a number does not count.
__device__ inline float largest_of(float4 x) {
  return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

__device__ inline int warp_min(int value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_min_sync(~0u, value);
#else
  for (int step = kWarp / 2; step > 0; step /= 2)
    value = min(value, __shfl_xor_sync(~0u, value, step));
  return value;
#endif
}

// For all threads of the block, which must be whole warps. `shared` holds a float for each warp.
template <class OfWarp>
__device__ float over_block(float value, float* shared, float neutral, OfWarp&& of_warp) {
  value = of_warp(value);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  value = of_warp(lane < warps ? shared[lane] : neutral);
  __syncthreads();
  return value;
}
__device__ inline float block_sum(float value, float* shared) {
  return over_block(value, shared, 0, [](float x) { return warp_sum(x); });
}
__device__ inline float block_max(float value, float* shared) {
  return over_block(value, shared, -INFINITY, [](float x) { return warp_max(x); });
}

// Places from `first` on, `step` apart, several at a time: what they read is on its way before the
// first is written, although nothing says that the two do not overlap.
template <class Index, class Read, class Write>
__device__ void for_several(Index first, Index end, Index step, Read&& read, Write&& write) {
  constexpr int kAtOnce = 4;
  for (Index i = first; i < end; i += kAtOnce * step) {
    decltype(read(i)) found[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) found[k] = read(min(i + k * step, end - 1));
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      if (i + k * step < end) write(i + k * step, found[k]);
  }
}

}  // namespace
}  // namespace lockstep::exec::cuda
