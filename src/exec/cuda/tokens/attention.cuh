// The steps of one token's attention, each by the warps of a block or by one of them.
#pragma once

#include <cfloat>

#include "exec/cuda/shared/attention.cuh"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/mma.cuh"
#include "exec/cuda/tokens/calls.h"

namespace lockstep::exec::cuda {
namespace {

constexpr int kHeads = 8;  // of a block, at most
// One more for the new key; where it and the new value are to be split, one for each.
template <bool kSplit>
constexpr int kWarps = kHeads + (kSplit ? 2 : 1);
template <bool kSplit>
constexpr int kThreads = kWarps<kSplit>* kWarp;
constexpr int kSpan = kAttentionSpan;  // positions of a block
constexpr int kMostShared = 200 * 1024;

// Loops that most models go through once or twice are not unrolled: this code runs once a launch,
// and its length is what it costs.

// Rows of halves in shared memory are 16 bytes longer than they need be, so that eight of them meet
// in no bank.
__host__ __device__ constexpr int row_stride(int size) {
  return size + 8;
}

// Shared memory, in bytes: keys and values of the span (their halves, then what is left of them), q
// and the new k, what the probabilities go through, and the rotations.
struct Places {
  int values, ready, halves, probs, tables, end;
};
template <bool kSplit>
__host__ __device__ Places places(const AttentionCall& call) {
  const int head = static_cast<int>(call.head_size), value = static_cast<int>(call.value_size);
  constexpr int kHalf = 2, kPlanes = kSplit ? 2 : 1;
  Places out;
  out.values = kPlanes * kSpan * row_stride(head) * kHalf;
  out.ready = out.values + kPlanes * kSpan * row_stride(value) * kHalf;
  out.halves = out.ready + (kHeads + 1) * head * 4;
  out.probs = out.halves + 2 * kHeads * row_stride(head) * kHalf;
  out.tables = out.probs + 2 * kHeads * row_stride(kSpan) * kHalf;
  out.end = out.tables + head * 4;
  return out;
}

// One row of q or the new k, by a warp: normalized, rotated, in shared memory as it will be used.
// `normed` and `rotated`: where it is kept on its way; null: nowhere.
__device__ void take_head(const TokenAttention& call, const float* from, const float* norm_weight,
                          float* normed, float* rotated, const float* rotations, float* ready) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int size = static_cast<int>(call.attention.head_size);
  float factor = 1;
  if (norm_weight != nullptr) {
    float squares = 0;
#pragma unroll 4
    for (int i = lane; i < size; i += kWarp) squares = fmaf(from[i], from[i], squares);
    factor = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(size) + call.epsilon);
  }
  // Where there is no rotation, pairs are a way to take two numbers at once.
  const bool rotates = call.pairs > 0;
  const int pairs = rotates ? call.pairs : size / 2;
  const int distance = call.adjacent ? 1 : pairs;
  const auto normalize = [&](int i, float value) {
    if (norm_weight == nullptr) return value;
    value *= factor * norm_weight[i];
    if (normed != nullptr) normed[i] = value;
    return value;
  };
  const auto keep = [&](int i, float value) {
    if (rotated != nullptr) rotated[i] = value;
    ready[i] = value;
  };
  constexpr int kAtOnce = 2;
  for (int first = lane; first < pairs; first += kAtOnce * kWarp) {
    float x[kAtOnce], y[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int pair = min(first + k * kWarp, pairs - 1), i = call.adjacent ? 2 * pair : pair;
      x[k] = from[i];
      y[k] = from[i + distance];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int pair = first + k * kWarp, i = call.adjacent ? 2 * pair : pair;
      if (pair >= pairs) break;
      const float a = normalize(i, x[k]), b = normalize(i + distance, y[k]);
      const float c = rotates ? rotations[pair] : 1, s = rotates ? rotations[pairs + pair] : 0;
      keep(i, rotates ? a * c - b * s : a);
      keep(i + distance, rotates ? a * s + b * c : b);
    }
  }
#pragma unroll 1
  for (int i = 2 * pairs + lane; i < size; i += kWarp) keep(i, normalize(i, from[i]));
  __syncwarp();
}

// A head of q for the tensor cores: row `row` has its halves, row + kHeads what is left of them.
// Gives the factor from products to scores.
__device__ float split_head(const float* ready, int size, float scale, int row, __half* halves) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float most = 0;
#pragma unroll 1
  for (int i = 2 * lane; i < size; i += 2 * kWarp) {
    const float2 two = *reinterpret_cast<const float2*>(ready + i);
    most = fmaxf(most, fmaxf(fabsf(two.x), fabsf(two.y)));
  }
  const int shift = shift_into_range(warp_max(most));
  const float factor = power_of_two(shift);
  const int stride = row_stride(size);
#pragma unroll 1
  for (int i = 2 * lane; i < size; i += 2 * kWarp) {
    const float2 two = *reinterpret_cast<const float2*>(ready + i);
    uint32_t high, low;
    split(two.x * factor, two.y * factor, high, low);
    *reinterpret_cast<uint32_t*>(halves + row * stride + i) = high;
    *reinterpret_cast<uint32_t*>(halves + (row + kHeads) * stride + i) = low;
  }
  return scale * power_of_two(-shift);
}

// What a block knows of its work.
struct Work {
  int first_head, heads, kv_head, head_size, value_size;
  int count;  // positions of the span
};

// Keys or values of the span in shared memory, as the cache has them.
template <bool kSplit>
struct Span {
  __half* high;  // [span][size]
  __half* low;
  int* shifts;
  int size;
  __device__ int place(int p) const { return p * row_stride(size); }
};

// Products that need not wait for one another. Rows 8 to 15 are what is left of rows 0 to 7.
struct TwoSums {
  float of[2][4] = {};
  __device__ float at(int i) const { return (of[0][i] + of[1][i]) + (of[0][2 + i] + of[1][2 + i]); }
};

__device__ __noinline__ float cap(float score, float most) {
  return most * tanhf(score / most);
}

// Scores of the span: a warp takes 16 positions. [kHeads][kSpan]
template <bool kSplit>
__device__ void find_scores(const AttentionCall& a, const Work& work, const __half* halves,
                            const Span<kSplit>& keys, const float* unscale,
                            float (*scores)[kSpan]) {
  static_assert(kSpan == 16 * kHeads);
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int stride = row_stride(work.head_size);
  if (warp >= kHeads || warp * 16 >= work.count) return;
  TwoSums sums[2];  // of eight positions each
#pragma unroll 4
  for (int step = 0; step < work.head_size; step += 16) {
    Left q;
    load_matrices<false>(halves + lane % 16 * stride + step + lane / 16 * 8, q.words[0], q.words[1],
                         q.words[2], q.words[3]);
    const auto multiply = [&](const __half* from, int which) {
      Right near, far;
      load_matrices<false>(
          from + keys.place(warp * 16 + lane / 16 * 8 + lane % 8) + step + lane / 8 % 2 * 8,
          near.words[0], near.words[1], far.words[0], far.words[1]);
      multiply_add(sums[0].of[which], q, near);
      multiply_add(sums[1].of[which], q, far);
    };
    multiply(keys.high, 0);
    if constexpr (kSplit) multiply(keys.low, 1);
  }
  const int h = lane / 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int p = warp * 16 + i / 2 * 8 + lane % 4 * 2 + i % 2;
    float score = sums[i / 2].at(i % 2) * unscale[h];
    if constexpr (kSplit) score *= p < work.count ? power_of_two(-keys.shifts[p]) : 0.0f;
    scores[h][p] = a.soft_cap > 0 ? cap(score, a.soft_cap) : score;
  }
}

// What the scores of a head come to: e to the power of each minus the largest is its probability,
// times a factor where values are split, as two halves in the head's rows of `probs`.
struct Probabilities {
  float largest = -INFINITY, total = 0;
  float unscale_values = 1;
};
template <bool kSplit>
__device__ Probabilities find_probabilities(const Work& work, const float* scores,
                                            const Span<kSplit>& values, int head, __half* probs) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr int kOfLane = kSpan / kWarp;
  const auto place = [&](int i) { return 2 * (i / 2 * kWarp + lane) + i % 2; };
  Probabilities out;
  float each[kOfLane];
  int least = kMostShift;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int p = place(i);
    each[i] = p < work.count ? scores[p] : -INFINITY;
    out.largest = fmaxf(out.largest, each[i]);
    if (kSplit && p < work.count) least = min(least, values.shifts[p]);
  }
  out.largest = warp_max(out.largest);
  if constexpr (kSplit) {
    least = warp_min(least);
    out.unscale_values = power_of_two(-least - kProbabilityBits);
  }
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int p = place(i);
    each[i] = p < work.count ? expf(each[i] - out.largest) : 0.0f;
    out.total += each[i];
    if (kSplit && p < work.count) each[i] *= probability_factor(least, values.shifts[p]);
  }
#pragma unroll
  for (int i = 0; i < kOfLane; i += 2) {
    uint32_t high, low;
    split(each[i], each[i + 1], high, low);
    __half* to = probs + head * row_stride(kSpan) + place(i);
    *reinterpret_cast<uint32_t*>(to) = high;
    *reinterpret_cast<uint32_t*>(to + kHeads * row_stride(kSpan)) = low;
  }
  out.total = warp_sum(out.total);
  return out;
}

// Values times probabilities: a warp takes eight numbers of the values at a time.
// keep(head, place, sum).
template <bool kSplit, class Keep>
__device__ void mix_values(const Work& work, const __half* probs, const Span<kSplit>& values,
                           Keep&& keep) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int first = warp * 8; first < work.value_size; first += kWarps<kSplit> * 8) {
    TwoSums sums;
#pragma unroll
    for (int step = 0; step < kSpan; step += 16) {
      if (step >= work.count) break;
      Left p;
      load_matrices<false>(probs + lane % 16 * row_stride(kSpan) + step + lane / 16 * 8, p.words[0],
                           p.words[1], p.words[2], p.words[3]);
      const auto multiply = [&](const __half* from, int which) {
        Right v;
        load_two_matrices_transposed(from + values.place(step + lane % 16) + first, v.words[0],
                                     v.words[1]);
        multiply_add(sums.of[which], p, v);
      };
      multiply(values.high, kSplit ? 0 : step / 16 % 2);
      if constexpr (kSplit) multiply(values.low, 1);
    }
    const int h = lane / 4;
    if (h >= work.heads) continue;
    keep(h, first + lane % 4 * 2, {sums.at(0), sums.at(1)});
  }
}

// The spans of one head, by a warp. parts: [splits][value_size + 2], a span's largest score and its
// total last.
__device__ void put_together(const float* parts, int splits, int value_size, float* out) {
  const auto two_at = [&](int s, int i) {
    const int64_t place = int64_t{s} * (value_size + 2) + i;
    return __ldcg(reinterpret_cast<const float2*>(parts + place));
  };
#pragma unroll 1
  for (int d = static_cast<int>(threadIdx.x) % kWarp * 2; d < value_size; d += 2 * kWarp) {
    float most = -FLT_MAX, sum = 0;
    float2 mix = {};
    for_several(
        0, splits, 1,
        [&](int s) {
          const float2 mixed = two_at(s, d), of_span = two_at(s, value_size);
          return make_float4(mixed.x, mixed.y, of_span.x, of_span.y);
        },
        [&](int, float4 at) {
          const float now = fmaxf(most, at.z), before = expf(most - now), factor = expf(at.z - now);
          most = now;
          sum = fmaf(factor, at.w, sum * before);
          mix = {fmaf(factor, at.x, mix.x * before), fmaf(factor, at.y, mix.y * before)};
        });
    *reinterpret_cast<float2*>(out + d) = {mix.x / sum, mix.y / sum};
  }
}

}  // namespace
}  // namespace lockstep::exec::cuda
