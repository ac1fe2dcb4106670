// The row that a block of products multiplies with: normalized, then as codes, as floats or as
// both, in shared memory. Every block does it for itself.
#pragma once

#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/launch.cuh"
#include "exec/cuda/tokens/calls.h"
#include "exec/cuda/weights/planes.h"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = kProductWarps * kWarp;

// Codes: the bytes of a unit in two planes of 16 bytes for the high ones and two for the low ones;
// then sums and scales. Floats: two planes of four numbers.
struct Input {
  int4* high;  // [2][units]
  int4* low;
  int2* sums;      // [units]
  float* scales;   // [units]
  float4* floats;  // [2][columns / 8]
  int units, fours, eights;
};
__device__ inline Input input_of(const TokenProducts& call, unsigned char* memory) {
  const auto columns = static_cast<unsigned>(call.columns);
  Input out;
  out.units = static_cast<int>(columns / kUnit);
  out.fours = static_cast<int>(columns / 4);
  out.eights = static_cast<int>((columns + 7) / 8);
  out.high = reinterpret_cast<int4*>(memory);
  out.low = out.high + 2 * out.units;
  out.sums = reinterpret_cast<int2*>(out.low + 2 * out.units);
  out.scales = reinterpret_cast<float*>(out.sums + out.units);
  out.floats = reinterpret_cast<float4*>(memory + call.floats_at);
  return out;
}

// N numbers that a thread takes at once, four or eight; those of 32 / N neighbouring threads are a
// unit. Eight take fewer instructions each, four are spread over more threads.
template <int N>
struct Numbers {
  float y[N];
  __device__ float4 four(unsigned k) const {
    return make_float4(y[4 * k], y[4 * k + 1], y[4 * k + 2], y[4 * k + 3]);
  }
};

// See prepare() in rows.cu. Added to a large number, the codes appear in its lowest bits.
template <int N>
__device__ void make_codes(const Numbers<N>& numbers, const Input& input, unsigned i, bool there) {
  uint32_t largest_bits = 0;  // magnitudes are ordered like their bits, and nothing is above NaN
#pragma unroll
  for (const float value : numbers.y)
    largest_bits = max(largest_bits, __float_as_uint(value) & 0x7fffffffu);
#pragma unroll
  for (int step = 1; step < kUnit / N; step *= 2)
    largest_bits = max(largest_bits, __shfl_xor_sync(~0u, largest_bits, step));
  const float largest = __uint_as_float(largest_bits);
  constexpr float kMost = 32512;
  const bool finite = largest <= 3.0e38f;
  const float inverse = largest > 0 ? kMost * __frcp_rn(largest) : 0;
  const bool tame = finite && inverse <= 3.0e38f;
  constexpr float kLarge = 12582912;  // 1.5 * 2^23
  uint32_t high[N / 4], low[N / 4];
  int sum = 0;
#pragma unroll
  for (int four = 0; four < N / 4; ++four) {
    uint32_t bits[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      bits[k] = __float_as_uint(__fmaf_rn(numbers.y[4 * four + k], inverse, kLarge));
    low[four] = __byte_perm(__byte_perm(bits[0], bits[1], 0x0040),
                            __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
#pragma unroll
    for (uint32_t& word : bits) word += 128;
    high[four] = __byte_perm(__byte_perm(bits[0], bits[1], 0x0051),
                             __byte_perm(bits[2], bits[3], 0x0051), 0x5410);
    if (!tame) high[four] = low[four] = 0;
    constexpr int kOnes = 0x01010101;
    sum += 256 * __dp4a(static_cast<int>(high[four]), kOnes, 0) +
           __dp4a(static_cast<int>(low[four]), kOnes, 0);
  }
#pragma unroll
  for (int step = 1; step < kUnit / 2 / N; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (!there) return;
  constexpr unsigned kOfUnit = kUnit / N, kOfHalf = kOfUnit / 2;  // threads
  const unsigned unit = i / kOfUnit, half = i / kOfHalf % 2, part = i % kOfHalf;
  const unsigned place = half * static_cast<unsigned>(input.units) + unit;
  if constexpr (N == 8) {
    reinterpret_cast<uint2*>(input.high + place)[part] = make_uint2(high[0], high[1]);
    reinterpret_cast<uint2*>(input.low + place)[part] = make_uint2(low[0], low[1]);
  } else {
    reinterpret_cast<uint32_t*>(input.high + place)[part] = high[0];
    reinterpret_cast<uint32_t*>(input.low + place)[part] = low[0];
  }
  if (part == 0) reinterpret_cast<int*>(input.sums + unit)[half] = sum;
  if (i % kOfUnit == 0)
    input.scales[unit] = !finite ? __int_as_float(0x7fc00000) : tame ? largest * (1 / kMost) : 0.0f;
}

// Like block_sum(), with one barrier: `shared` must not be in use. All warps add up alike.
__device__ inline float sum_of_block(float value, float* shared) {
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = shared[0];
#pragma unroll
  for (int i = 1; i < kProductWarps; ++i) sum += shared[i];
  return sum;
}

template <int N>
__device__ void keep_input(const TokenProducts& call, const Input& input, const Numbers<N>& numbers,
                           unsigned i) {
  const auto fours = static_cast<unsigned>(input.fours);
  if (call.takes_floats)
#pragma unroll
    for (unsigned k = 0; k < N / 4; ++k)
      if (const unsigned four = i * (N / 4) + k; four < fours)
        input.floats[four % 2 * static_cast<unsigned>(input.eights) + four / 2] = numbers.four(k);
  if (call.takes_codes) make_codes(numbers, input, i, i * (N / 4) < fours);
}

// Reads the input once the kernel before has written it; `meanwhile` is what can be done before.
// `shared`: two floats for each warp. Whole warps go through the rounds, since several threads make
// a unit.
template <int N, class Meanwhile>
__device__ __forceinline__ void take_input(const TokenProducts& call, const Input& input,
                                           float* shared, Meanwhile&& meanwhile) {
  const unsigned thread = threadIdx.x;
  const auto fours = static_cast<unsigned>(input.fours);
  const unsigned count = (fours + N / 4 - 1) / (N / 4);
  const auto load = [&](const float* from, unsigned i) {
    Numbers<N> out;
#pragma unroll
    for (unsigned k = 0; k < N / 4; ++k) {
      const unsigned place = i * (N / 4) + k;
      const float4 four =
          place < fours ? reinterpret_cast<const float4*>(from)[place] : make_float4(0, 0, 0, 0);
      out.y[4 * k] = four.x;
      out.y[4 * k + 1] = four.y;
      out.y[4 * k + 2] = four.z;
      out.y[4 * k + 3] = four.w;
    }
    return out;
  };
  if (call.norm_weight == nullptr) {
    meanwhile();
    wait_for_inputs();
    Numbers<N> next = load(call.x, thread);
#pragma unroll 1
    for (unsigned i = thread; i - thread % kWarp < count; i += kThreads) {
      const Numbers<N> now = next;
      next = load(call.x, i + kThreads);
      keep_input(call, input, now, i);
    }
    return;
  }
  // The first round, which is the only one of most models, has all it needs in registers.
  const bool has_bias = call.norm_bias != nullptr;
  Numbers<N> weight = load(call.norm_weight, thread), bias{};
  if (has_bias) bias = load(call.norm_bias, thread);
  meanwhile();
  wait_for_inputs();
  Numbers<N> x = load(call.x, thread);
  const auto sum_of = [&](float* place, auto&& function) {
    float sum = 0;
    const auto add = [&](const Numbers<N>& numbers, unsigned i) {
#pragma unroll
      for (unsigned k = 0; k < N; ++k)
        if (i * (N / 4) + k / 4 < fours) sum = function(numbers.y[k], sum);
    };
    add(x, thread);
#pragma unroll 1
    for (unsigned i = thread + kThreads; i < count; i += kThreads) add(load(call.x, i), i);
    return sum_of_block(sum, place);
  };
  float mean = 0;
  if (call.layer_norm)
    mean = sum_of(shared + kProductWarps, [](float v, float sum) { return sum + v; }) *
           call.inverse_count;
  const float squares =
      sum_of(shared, [&](float v, float sum) { return fmaf(v - mean, v - mean, sum); });
  const float factor = __frsqrt_rn(fmaf(squares, call.inverse_count, call.epsilon));
#pragma unroll 1
  for (unsigned i = thread; i - thread % kWarp < count; i += kThreads) {
    if (i != thread) {
      x = load(call.x, i);
      weight = load(call.norm_weight, i);
      if (has_bias) bias = load(call.norm_bias, i);
    }
    Numbers<N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      out.y[k] = (x.y[k] - mean) * factor * weight.y[k];
      if (has_bias) out.y[k] += bias.y[k];
    }
    if (blockIdx.x == 0)
#pragma unroll
      for (unsigned k = 0; k < N / 4; ++k)
        if (const unsigned place = i * (N / 4) + k; place < fours)
          reinterpret_cast<float4*>(call.normed)[place] = out.four(k);
    keep_input(call, input, out, i);
  }
}

}  // namespace
}  // namespace lockstep::exec::cuda
