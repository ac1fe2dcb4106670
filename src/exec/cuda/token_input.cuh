// The row that a block of products multiplies with: normalized, then as codes, as floats or as
// both, in shared memory. Every block does it for itself.
#pragma once

#include "exec/cuda/block.cuh"
#include "exec/cuda/launch.cuh"
#include "exec/cuda/planes.h"
#include "exec/cuda/token_calls.h"

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

// Four numbers of eight neighbouring threads each are a unit; see prepare() in rows.cu. Added to a
// large number, the codes appear in its lowest bits.
__device__ inline void make_codes(const float4& four, const Input& input, unsigned i, bool there) {
  const float y[4] = {four.x, four.y, four.z, four.w};
  uint32_t largest_bits = 0;  // magnitudes are ordered like their bits, and nothing is above NaN
#pragma unroll
  for (const float value : y)
    largest_bits = max(largest_bits, __float_as_uint(value) & 0x7fffffffu);
#pragma unroll
  for (int step = 1; step < kUnit / 4; step *= 2)
    largest_bits = max(largest_bits, __shfl_xor_sync(~0u, largest_bits, step));
  const float largest = __uint_as_float(largest_bits);
  constexpr float kMost = 32512;
  const bool finite = largest <= 3.0e38f;
  const float inverse = largest > 0 ? kMost * __frcp_rn(largest) : 0;
  const bool tame = finite && inverse <= 3.0e38f;
  constexpr float kLarge = 12582912;  // 1.5 * 2^23
  uint32_t bits[4];
#pragma unroll
  for (int k = 0; k < 4; ++k)
    bits[k] = __float_as_uint(__fmaf_rn(y[k], inverse, kLarge));
  uint32_t low = __byte_perm(__byte_perm(bits[0], bits[1], 0x0040),
                             __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
#pragma unroll
  for (uint32_t& word : bits) word += 128;
  uint32_t high = __byte_perm(__byte_perm(bits[0], bits[1], 0x0051),
                              __byte_perm(bits[2], bits[3], 0x0051), 0x5410);
  if (!tame) high = low = 0;
  constexpr int kOnes = 0x01010101;
  int sum = 256 * __dp4a(static_cast<int>(high), kOnes, 0) +
            __dp4a(static_cast<int>(low), kOnes, 0);  // of 16 columns, by four threads
  sum += __shfl_xor_sync(~0u, sum, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (!there) return;
  const unsigned unit = i / 8, half = i / 4 % 2, part = i % 4;
  const unsigned place = half * static_cast<unsigned>(input.units) + unit;
  reinterpret_cast<uint32_t*>(input.high + place)[part] = high;
  reinterpret_cast<uint32_t*>(input.low + place)[part] = low;
  if (part == 0) reinterpret_cast<int*>(input.sums + unit)[half] = sum;
  if (i % 8 == 0)
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

__device__ inline void keep_input(const TokenProducts& call, const Input& input, const float4& y,
                                  unsigned i) {
  const bool there = i < static_cast<unsigned>(input.fours);
  if (call.takes_floats && there)
    input.floats[i % 2 * static_cast<unsigned>(input.eights) + i / 2] = y;
  if (call.takes_codes) make_codes(y, input, i, there);
}

// Reads the input once the kernel before has written it; `meanwhile` is what can be done before.
// `shared`: two floats for each warp. Whole warps go through the rounds, since eight threads make a
// unit.
template <class Meanwhile>
__device__ void take_input(const TokenProducts& call, const Input& input, float* shared,
                           Meanwhile&& meanwhile) {
  const unsigned thread = threadIdx.x, fours = static_cast<unsigned>(input.fours);
  const auto load = [&](const float* from, unsigned i) {
    return i < fours ? reinterpret_cast<const float4*>(from)[i] : make_float4(0, 0, 0, 0);
  };
  if (call.norm_weight == nullptr) {
    meanwhile();
    wait_for_inputs();
    // What comes next is on its way.
    float4 now = load(call.x, thread), next = load(call.x, thread + kThreads);
#pragma unroll 1
    for (unsigned i = thread; i - thread % kWarp < fours; i += kThreads) {
      const float4 after = load(call.x, i + 2 * kThreads);
      keep_input(call, input, now, i);
      now = next;
      next = after;
    }
    return;
  }
  const bool has_bias = call.norm_bias != nullptr;
  float4 weight = load(call.norm_weight, thread), bias{};
  if (has_bias) bias = load(call.norm_bias, thread);
  // Of the second round too, which is the last of most models that have one.
  const float4 second_weight = load(call.norm_weight, thread + kThreads);
  meanwhile();
  wait_for_inputs();
  float4 x = load(call.x, thread);
  const float4 second_x = load(call.x, thread + kThreads);
  const auto sum_of = [&](float* place, auto&& function) {
    float sum = 0;
    if (thread < fours) sum = function(x, sum);
    if (thread + kThreads < fours) sum = function(second_x, sum);
#pragma unroll 1
    for (unsigned i = thread + 2 * kThreads; i < fours; i += kThreads)
      sum = function(load(call.x, i), sum);
    return sum_of_block(sum, place);
  };
  const auto count = static_cast<float>(call.columns);
  float mean = 0;
  if (call.layer_norm)
    mean = sum_of(shared + kProductWarps,
                  [](const float4& v, float sum) { return sum + v.x + v.y + v.z + v.w; }) /
           count;
  const float squares = sum_of(shared, [&](const float4& v, float sum) {
    const float a = v.x - mean, b = v.y - mean, c = v.z - mean, d = v.w - mean;
    return fmaf(d, d, fmaf(c, c, fmaf(b, b, fmaf(a, a, sum))));
  });
  const float factor = 1.0f / sqrtf(squares / count + call.epsilon);
#pragma unroll 1
  for (unsigned i = thread; i - thread % kWarp < fours; i += kThreads) {
    if (i == thread + kThreads) {
      x = second_x;
      weight = second_weight;
    } else if (i != thread) {
      x = load(call.x, i);
      weight = load(call.norm_weight, i);
    }
    if (has_bias && i != thread) bias = load(call.norm_bias, i);
    float4 y;
    y.x = (x.x - mean) * factor * weight.x;
    y.y = (x.y - mean) * factor * weight.y;
    y.z = (x.z - mean) * factor * weight.z;
    y.w = (x.w - mean) * factor * weight.w;
    if (has_bias) {
      y.x += bias.x;
      y.y += bias.y;
      y.z += bias.z;
      y.w += bias.w;
    }
    if (blockIdx.x == 0 && i < fours) reinterpret_cast<float4*>(call.normed)[i] = y;
    keep_input(call, input, y, i);
  }
}

}  // namespace
}  // namespace lockstep::exec::cuda
