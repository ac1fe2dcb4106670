// Attention of one token, with what comes before it: norms of heads, rotation, the cache. A block
// takes one key-value head with up to kHeads of its query heads, and a span of positions, so that
// the order of the sums depends on the position alone. The block that ends last puts the spans
// together. What the cache held before comes in while the projections are still being computed. All
// products run on the tensor cores: queries and probabilities go as two halves, and so do keys and
// values where the cache has them so.
#include <cfloat>

#include "exec/cuda/attention.cuh"
#include "exec/cuda/block.cuh"
#include "exec/cuda/launch.cuh"
#include "exec/cuda/mma.cuh"
#include "exec/cuda/token_calls.h"

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

template <bool kSplit>
__global__ void __launch_bounds__(kThreads<kSplit>, 2)
    token_attention_kernel(const __grid_constant__ TokenAttention call) {
  const AttentionCall& a = call.attention;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ float scores[kHeads][kSpan], largest[kHeads], total[kHeads], unscale[kHeads];
  __shared__ int shifts[kSplit ? 2 : 1][kSpan];  // of keys and values
  __shared__ float unscale_values;
  __shared__ bool is_last;
  let_next_start();
  const Places at = places<kSplit>(a);
  float* ready = reinterpret_cast<float*>(memory + at.ready);      // [heads + 1][head_size], k last
  __half* halves = reinterpret_cast<__half*>(memory + at.halves);  // of q: [2][heads][head_size]
  __half* probs = reinterpret_cast<__half*>(memory + at.probs);    // [2][heads][span]
  float* rotations = reinterpret_cast<float*>(memory + at.tables);  // cosines, then sines
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int group = static_cast<int>(a.heads) / static_cast<int>(a.kv_heads);
  const int head_chunks = (group + kHeads - 1) / kHeads;
  Work work;
  work.head_size = static_cast<int>(a.head_size);
  work.value_size = static_cast<int>(a.value_size);
  work.kv_head = static_cast<int>(blockIdx.y) / head_chunks;
  const int chunk = static_cast<int>(blockIdx.y) - work.kv_head * head_chunks;
  work.first_head = work.kv_head * group + chunk * kHeads;
  work.heads = min(kHeads, group - chunk * kHeads);
  const int head_size = work.head_size, value_size = work.value_size;
  const auto span_at = [&](unsigned char* place, int size, int which) {
    auto* high = reinterpret_cast<__half*>(place);
    return Span<kSplit>{high, high + kSpan * row_stride(size), shifts[kSplit ? which : 0], size};
  };
  const Span<kSplit> keys = span_at(memory, head_size, 0);
  const Span<kSplit> values = span_at(memory + at.values, value_size, 1);

  // The state and the rotations were written before any of this token's kernels: no need to wait.
  const auto position = static_cast<int>(a.state->first_position);
  const Range range = seen_by(a, position);
  const int first_split = static_cast<int>(range.begin) / kSpan, last_split = position / kSpan;
  const int split = static_cast<int>(blockIdx.x);
  if (split < first_split || split > last_split) {
    wait_for_inputs();
    return;
  }
  const int begin = max(static_cast<int>(range.begin), split * kSpan);
  work.count = min(position + 1, (split + 1) * kSpan) - begin;
  const bool has_new = split == last_split;
  const int old = work.count - (has_new ? 1 : 0);
  const CacheHead<kSplit> cached_keys(a.cache.keys, a.cache.positions, work.kv_head, head_size);
  const CacheHead<kSplit> cached_values(a.cache.values, a.cache.positions, work.kv_head,
                                        value_size);
  // A warp takes as many whole rows at a time as it has lanes for.
  const auto copy_rows = [&](const __half* from, __half* to, int size) {
    constexpr int kNumbers = 8;
    const int chunks = size / kNumbers;
    const int rows = max(kWarp / chunks, 1), row = lane / chunks;
    if (row >= rows) return;
#pragma unroll 1
    for (int p = warp * rows + row; p < old; p += kWarps<kSplit> * rows)
#pragma unroll 1
      for (int i = lane - row * chunks; i < chunks; i += kWarp)
        copy_16(to + p * row_stride(size) + i * kNumbers,
                from + (static_cast<int64_t>(begin) + p) * size + i * kNumbers);
  };
  const auto copy_span = [&](const CacheHead<kSplit>& from, const Span<kSplit>& to) {
    copy_rows(from.high, to.high, to.size);
    if constexpr (kSplit) {
      copy_rows(from.low, to.low, to.size);
      if (thread < old) to.shifts[thread] = from.shifts[begin + thread];
    }
  };
  copy_span(cached_keys, keys);
  copy_span(cached_values, values);
  if (call.cosines != nullptr) {
#pragma unroll 1
    for (int i = thread; i < 2 * call.pairs; i += kThreads<kSplit>)
      rotations[i] = i < call.pairs ? call.cosines[i] : call.sines[i - call.pairs];
  }
  // Heads that are not there, and values that zero is to be multiplied with.
#pragma unroll 1
  for (int i = thread; i < (kHeads - work.heads) * head_size; i += kThreads<kSplit>)
    ready[work.heads * head_size + i] = 0;
#pragma unroll 1
  for (int i = values.place(work.count) + thread; i < values.place((work.count + 15) / 16 * 16);
       i += kThreads<kSplit>) {
    values.high[i] = __half(0.0f);
    if constexpr (kSplit) values.low[i] = __half(0.0f);
  }
  __syncthreads();

  wait_for_inputs();
  // The block that has the new position keeps what comes on the way. The new values are on their
  // way while the heads are taken.
  const int row = warp;
  const bool is_q = row < kHeads, is_k = row == kHeads;
  const float* new_values = call.v + work.kv_head * value_size;
  float new_value = 0;
  SplitRow new_row;
  if (has_new && kSplit && !is_q && !is_k) new_row.load(new_values, value_size);
  if (has_new && !kSplit && thread < value_size) new_value = new_values[thread];
  if (is_q || (is_k && has_new)) {
    const TokenAttention::Heads& side = is_q ? call.q : call.k;
    const int offset = (is_q ? work.first_head + row : work.kv_head) * head_size;
    if (!is_q || row < work.heads)
      take_head(call, side.raw + offset, side.norm_weight,
                has_new && side.normed != nullptr ? side.normed + offset : nullptr,
                has_new && side.rotated != nullptr ? side.rotated + offset : nullptr, rotations,
                ready + row * head_size);
    if (is_q) {
      const float factor = split_head(ready + row * head_size, head_size, a.scale, row, halves);
      if (lane == 0) unscale[row] = factor;
    }
  }
  if constexpr (kSplit) {
    if (!is_q && has_new) {
      if (is_k) new_row.load(ready + row * head_size, head_size);
      const CacheHead<kSplit> cached = is_k ? cached_keys : cached_values;
      const Span<kSplit> span = is_k ? keys : values;
      new_row.split(span.size);
      new_row.store(span.high + span.place(old), span.low + span.place(old), span.size);
      if (lane == 0) span.shifts[old] = new_row.shift;
      if (chunk == 0) cached.store(new_row, position);
    }
  } else if (has_new) {
    if (is_k)
#pragma unroll 1
      for (int i = lane; i < head_size; i += kWarp) {
        const __half key = __float2half_rn(ready[row * head_size + i]);
        keys.high[keys.place(old) + i] = key;
        if (chunk == 0) cached_keys.high[static_cast<int64_t>(position) * head_size + i] = key;
      }
#pragma unroll 1
    for (int i = thread; i < value_size; i += kThreads<kSplit>) {
      const __half value = __float2half_rn(i == thread ? new_value : new_values[i]);
      values.high[values.place(old) + i] = value;
      if (chunk == 0) cached_values.high[static_cast<int64_t>(position) * value_size + i] = value;
    }
  }
  wait_for_copies();
  __syncthreads();

  find_scores(a, work, halves, keys, unscale, scores);
  __syncthreads();
  if (warp < kHeads) {
    if (a.scores != nullptr && warp < work.heads)
#pragma unroll 1
      for (int p = lane; p < work.count; p += kWarp)
        keep_score(a, work.first_head + warp, 0, begin + p, scores[warp][p]);
    const Probabilities found = find_probabilities(work, scores[warp], values, warp, probs);
    if (lane == 0) {
      largest[warp] = found.largest;
      total[warp] = found.total;
      if (kSplit && warp == 0) unscale_values = found.unscale_values;
    }
  }
  __syncthreads();

  const int splits = last_split - first_split + 1;
  const int64_t stride = value_size + 2;
  float* kept = a.parts + work.first_head * a.splits * stride;  // [head][split][value_size + 2]
  const auto keep = [&](int h, int d, float2 mix) {
    if constexpr (kSplit) mix = {mix.x * unscale_values, mix.y * unscale_values};
    float* to = kept + (h * a.splits + split) * stride + d;
    if (splits == 1) {
      to = a.out + (work.first_head + h) * value_size + d;
      mix = {mix.x / total[h], mix.y / total[h]};
    }
    *reinterpret_cast<float2*>(to) = mix;
  };
  mix_values(work, probs, values, keep);
  if (splits == 1) return;
  if (thread < work.heads)
    *reinterpret_cast<float2*>(kept + (thread * a.splits + split) * stride + value_size) = {
        largest[thread], total[thread]};
  __threadfence();
  __syncthreads();
  if (thread == 0) {
    const uint32_t before = atomicAdd(call.arrived + blockIdx.y, 1u);
    is_last = before + 1 == static_cast<uint32_t>(splits);
    if (is_last) call.arrived[blockIdx.y] = 0;
  }
  __syncthreads();
  if (!is_last || warp >= work.heads) return;
  __threadfence();
  put_together(kept + (warp * a.splits + first_split) * stride, splits, value_size,
               a.out + (work.first_head + warp) * value_size);
}

template <bool kSplit>
void run(const TokenAttention& call, cudaStream_t stream) {
  static const bool ready = [] {
    const auto kernel = token_attention_kernel<kSplit>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    return true;
  }();
  static_cast<void>(ready);
  const AttentionCall& a = call.attention;
  const int64_t group = a.heads / a.kv_heads;
  const dim3 grid(static_cast<unsigned>(a.splits),
                  static_cast<unsigned>(a.kv_heads * ((group + kHeads - 1) / kHeads)));
  launch(token_attention_kernel<kSplit>, grid, kThreads<kSplit>,
         static_cast<size_t>(places<kSplit>(a).end), stream, call);
}

}  // namespace

int multiprocessors_for(const AttentionCall& call) {
  constexpr int64_t kBlocks = 2, kSplits = 2;  // that one holds; of a context that is not long
  const int64_t group = call.heads / call.kv_heads;
  const int64_t blocks = call.kv_heads * ((group + kHeads - 1) / kHeads) * kSplits;
  return static_cast<int>((blocks + kBlocks - 1) / kBlocks);
}

bool fits_token_attention(const AttentionCall& call) {
  const int bytes = call.cache.split() ? places<true>(call).end : places<false>(call).end;
  return call.head_size % 16 == 0 && call.value_size % 8 == 0 && call.span == kSpan &&
         call.cache.positions < INT32_MAX && bytes <= kMostShared &&
         (!call.cache.split() || max(call.head_size, call.value_size) <= SplitRow::kLongest);
}

void run_token_attention(const TokenAttention& call, cudaStream_t stream) {
  if (call.attention.cache.split())
    run<true>(call, stream);
  else
    run<false>(call, stream);
}

}  // namespace lockstep::exec::cuda
