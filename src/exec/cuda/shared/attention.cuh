// What the kernels of attention share.
#pragma once

#include <cuda_fp16.h>

#include "exec/cuda/calls.h"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/mma.cuh"

namespace lockstep::exec::cuda {
namespace {

// A row in single precision, spread over a warp: four numbers of each 128 to a lane. As two halves
// each it is times 2^shift, which brings it into range.
struct SplitRow {
  static constexpr int kLongest = 256;
  static constexpr int kFours = kLongest / (4 * kWarp);
  float4 numbers[kFours] = {};
  uint2 high[kFours], low[kFours];
  int shift = 0;

  template <class Visitor>
  static __device__ void visit(int size, Visitor&& visitor) {
#pragma unroll
    for (int k = 0; k < kFours; ++k)
      if (const int i = 4 * (k * kWarp + static_cast<int>(threadIdx.x) % kWarp); i < size)
        visitor(k, i);
  }
  __device__ void load(const float* from, int size) {
    visit(size, [&](int k, int i) { numbers[k] = *reinterpret_cast<const float4*>(from + i); });
  }
  __device__ void split(int size) {
    float most = 0;
    visit(size, [&](int k, int) { most = fmaxf(most, largest_of(numbers[k])); });
    most = warp_max(most);
    shift = shift_into_range(most);
    const float scale = power_of_two(shift);
    visit(size, [&](int k, int) {
      const float4 x = numbers[k];
      cuda::split(x.x * scale, x.y * scale, high[k].x, low[k].x);
      cuda::split(x.z * scale, x.w * scale, high[k].y, low[k].y);
      if (isinf(most)) low[k] = {};  // nothing is left of infinity
    });
  }
  __device__ void store(__half* to_high, __half* to_low, int size) const {
    visit(size, [&](int k, int i) {
      *reinterpret_cast<uint2*>(to_high + i) = high[k];
      *reinterpret_cast<uint2*>(to_low + i) = low[k];
    });
  }
};

// Keys or values of one head in the cache.
template <bool kSplit>
struct CacheHead {
  __half* high;  // [positions][size]
  __half* low;
  int8_t* shifts;
  int size;

  __device__ CacheHead(const CachePlanes& planes, int64_t positions, int64_t head, int64_t size_of)
      : high(reinterpret_cast<__half*>(planes.high) + head * positions * size_of),
        low(reinterpret_cast<__half*>(planes.low) + (kSplit ? head * positions * size_of : 0)),
        shifts(planes.shifts + (kSplit ? head * positions : 0)),
        size(static_cast<int>(size_of)) {}
  __device__ float unscale(int64_t p) const {
    return kSplit ? power_of_two(-static_cast<int>(shifts[p])) : 1.0f;
  }
  __device__ float at(int64_t p, int64_t i) const {
    const int64_t place = p * size + i;
    float out = __half2float(high[place]);
    if constexpr (kSplit) out = (out + __half2float(low[place])) * unscale(p);
    return out;
  }
  __device__ void store(const SplitRow& row, int64_t p) const {
    row.store(high + p * size, low + p * size, size);
    if (threadIdx.x % kWarp == 0) shifts[p] = static_cast<int8_t>(row.shift);
  }
};

// Probabilities that meet values of several shifts: relative to the least of these, and with bits
// to spare.
constexpr int kProbabilityBits = 12;
__device__ inline float probability_factor(int least, int shift) {
  return power_of_two(max(least - shift + kProbabilityBits, -126));
}

struct Range {
  int64_t begin, end;  // positions that a token sees
};
__device__ inline Range seen_by(const AttentionCall& call, int64_t position) {
  const int64_t end = position + 1;
  return {call.window > 0 && end > call.window ? end - call.window : 0, end};
}

__device__ inline float sink_of(const AttentionCall& call, int64_t head) {
  return call.sinks != nullptr ? call.sinks[head] : -INFINITY;
}

__device__ inline float finish_score(const AttentionCall& call, float sum) {
  sum *= call.scale;
  return call.soft_cap > 0 ? call.soft_cap * tanhf(sum / call.soft_cap) : sum;
}

// Where somebody watches.
__device__ inline void keep_score(const AttentionCall& call, int64_t head, int64_t t, int64_t p,
                                  float score) {
  call.scores[(head * call.tokens + t) * call.positions + p] = score;
}

}  // namespace
}  // namespace lockstep::exec::cuda
