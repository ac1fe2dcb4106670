// Attention of one token, with what comes before it: norms of heads, rotation, the cache. A block
// takes one key-value head with up to kHeads of its query heads, and a span of positions, so that
// the order of the sums depends on the position alone. The block that ends last puts the spans
// together. What the cache held before comes in while the projections are still being computed.
#include "exec/cuda/attention.cuh"
#include "exec/cuda/block.cuh"
#include "exec/cuda/launch.cuh"
#include "exec/cuda/mma.cuh"
#include "exec/cuda/token_calls.h"

namespace lockstep::exec::cuda {
namespace {

constexpr int kHeads = 8;           // of a block, at most
constexpr int kWarps = kHeads + 1;  // one more for the new key
constexpr int kThreads = kWarps * kWarp;
constexpr int kSpan = 64;                       // positions of a block
constexpr int kParts = kHeads * kWarp / kSpan;  // threads of a position
constexpr int kMostShared = 96 * 1024;

// Rows in shared memory are 16 bytes longer than they need be, so that eight of them meet in no
// bank.
template <class T>
__host__ __device__ constexpr int row_stride(int size) {
  return size + 16 / static_cast<int>(sizeof(T));
}

// Shared memory, in bytes: keys and values of the span, q and the new k, what the probabilities go
// through, and the rotations.
struct Places {
  int values, ready, halves, mix, tables, end;
};
template <class T>
__host__ __device__ Places places(const AttentionCall& call) {
  const int head = static_cast<int>(call.head_size), value = static_cast<int>(call.value_size);
  const int number = static_cast<int>(sizeof(T));
  Places out;
  out.values = kSpan * row_stride<T>(head) * number;
  out.ready = out.values + kSpan * row_stride<T>(value) * number;
  out.halves = out.ready + (kHeads + 1) * head * 4;
  out.mix = out.halves + (number == 2 ? 2 * kHeads * row_stride<T>(head) * number : 0);
  out.tables = out.mix + (number == 2 ? 2 * kHeads * row_stride<T>(kSpan) * number
                                      : kHeads * max(kThreads * 2, value) * 4);
  out.end = out.tables + head * 4;
  return out;
}

template <class T>
__device__ inline T stored(float value) {
  if constexpr (sizeof(T) == 2)
    return __float2half_rn(value);
  else
    return value;
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
  for (int i = 2 * pairs + lane; i < size; i += kWarp) keep(i, normalize(i, from[i]));
  __syncwarp();
}

// A head of q for the tensor cores: row `row` has its halves, row + kHeads what is left of them.
// Gives the factor from products to scores.
__device__ float split_head(const float* ready, int size, float scale, int row, __half* halves) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float most = 0;
  for (int i = lane; i < size; i += kWarp) most = fmaxf(most, fabsf(ready[i]));
  const int shift = shift_into_range(warp_max(most));
  const float factor = power_of_two(shift);
  const int stride = row_stride<__half>(size);
  for (int i = 2 * lane; i < size; i += 2 * kWarp) {
    uint32_t high, low;
    split(ready[i] * factor, ready[i + 1] * factor, high, low);
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

// Scores of the span on the tensor cores: a warp takes eight positions. [kHeads][kSpan]
__device__ void score_halves(const AttentionCall& a, const Work& work, const __half* halves,
                             const __half* keys, const float* unscale, float (*scores)[kSpan]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int stride = row_stride<__half>(work.head_size);
  if (warp >= kSpan / 8) return;
  float sums[4] = {};
#pragma unroll 4
  for (int step = 0; step < work.head_size; step += 16) {
    Left q;
    load_matrices<false>(halves + lane % 16 * stride + step + lane / 16 * 8, q.words[0], q.words[1],
                         q.words[2], q.words[3]);
    const __half* key = keys + (warp * 8 + lane / 4) * stride + step + lane % 4 * 2;
    const Right k{
        {*reinterpret_cast<const uint32_t*>(key), *reinterpret_cast<const uint32_t*>(key + 8)}};
    multiply_add(sums, q, k);
  }
  const int h = lane / 4, p = warp * 8 + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float score = (sums[i] + sums[2 + i]) * unscale[h];
    if (a.soft_cap > 0) score = a.soft_cap * tanhf(score / a.soft_cap);
    scores[h][p + i] = p + i < work.count ? score : -INFINITY;
  }
}

// kParts neighbouring threads share a position, and add up their chunks' products.
__device__ void score_floats(const AttentionCall& a, const Work& work, const float* ready,
                             const float* keys, float (*scores)[kSpan]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int p = thread / kParts, part = thread % kParts;
  if (p >= kSpan) return;  // a whole warp
  float dots[kHeads] = {};
  if (p < work.count)
    for (int i = part * 4; i < work.head_size; i += kParts * 4) {
      const float4 k =
          *reinterpret_cast<const float4*>(keys + p * row_stride<float>(work.head_size) + i);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const float4 q = *reinterpret_cast<const float4*>(ready + h * work.head_size + i);
        dots[h] = fmaf(q.w, k.w, fmaf(q.z, k.z, fmaf(q.y, k.y, fmaf(q.x, k.x, dots[h]))));
      }
    }
#pragma unroll
  for (int step = 1; step < kParts; step *= 2)
#pragma unroll
    for (int h = 0; h < kHeads; ++h) dots[h] += __shfl_xor_sync(~0u, dots[h], step);
  if (part == 0)
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
      scores[h][p] = p < work.count ? finish_score(a, dots[h]) : -INFINITY;
}

// Values times probabilities, on the tensor cores: a warp takes eight numbers of the values at a
// time. keep(head, place, sum).
template <class Keep>
__device__ void mix_halves(const Work& work, const __half* probs, const __half* values,
                           Keep&& keep) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int stride = row_stride<__half>(work.value_size);
  for (int first = warp * 8; first < work.value_size; first += kWarps * 8) {
    float sums[4] = {};
#pragma unroll
    for (int step = 0; step < kSpan; step += 16) {
      if (step >= work.count) break;
      Left p;
      load_matrices<false>(probs + lane % 16 * row_stride<__half>(kSpan) + step + lane / 16 * 8,
                           p.words[0], p.words[1], p.words[2], p.words[3]);
      Right v;
      load_two_matrices_transposed(values + (step + lane % 16) * stride + first, v.words[0],
                                   v.words[1]);
      multiply_add(sums, p, v);
    }
    const int h = lane / 4;
    if (h >= work.heads) continue;
    keep(h, first + lane % 4 * 2, sums[0] + sums[2]);
    keep(h, first + lane % 4 * 2 + 1, sums[1] + sums[3]);
  }
}

// The same in single precision: two neighbouring numbers of the values a thread; positions in as
// many parts as there are threads for. `sums`: [kHeads][parts][value_size]
template <class Keep>
__device__ void mix_floats(const Work& work, const float (*probs)[kSpan], const float* values,
                           float* sums, Keep&& keep) {
  const int thread = static_cast<int>(threadIdx.x);
  const int pairs = work.value_size / 2;
  const int parts = max(1, kThreads / pairs), part = thread / pairs;
  if (part < parts)
    for (int pair = thread - part * pairs; pair < pairs; pair += kThreads) {
      float mix[kHeads][2] = {};
      for (int p = part; p < work.count; p += parts) {
        const float2 v = *reinterpret_cast<const float2*>(
            values + p * row_stride<float>(work.value_size) + 2 * pair);
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          mix[h][0] = fmaf(probs[h][p], v.x, mix[h][0]);
          mix[h][1] = fmaf(probs[h][p], v.y, mix[h][1]);
        }
      }
#pragma unroll
      for (int h = 0; h < kHeads; ++h)
        *reinterpret_cast<float2*>(sums + ((h * parts + part) * pairs + pair) * 2) =
            make_float2(mix[h][0], mix[h][1]);
    }
  __syncthreads();
  const int h = thread / (kThreads / kHeads);
  if (h >= work.heads) return;
  for (int d = thread % (kThreads / kHeads); d < work.value_size; d += kThreads / kHeads) {
    float mix = 0;
    for (int i = 0; i < parts; ++i) mix += sums[(h * parts + i) * work.value_size + d];
    keep(h, d, mix);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    token_attention_kernel(const __grid_constant__ TokenAttention call) {
  constexpr bool kHalf = sizeof(T) == 2;
  const AttentionCall& a = call.attention;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ float scores[kHeads][kSpan], largest[kHeads], total[kHeads], unscale[kHeads];
  __shared__ bool is_last;
  let_next_start();
  const Places at = places<T>(a);
  constexpr int kNumbers = 16 / sizeof(T);
  T* keys = reinterpret_cast<T*>(memory);                          // [span][head_size]
  T* values = reinterpret_cast<T*>(memory + at.values);            // [span][value_size]
  float* ready = reinterpret_cast<float*>(memory + at.ready);      // [heads + 1][head_size], k last
  __half* halves = reinterpret_cast<__half*>(memory + at.halves);  // of q: [2][heads][head_size]
  __half* probs = reinterpret_cast<__half*>(memory + at.mix);      // [2][heads][span]
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
  T* cached_keys = static_cast<T*>(a.cache.keys) + work.kv_head * a.cache.positions * head_size;
  T* cached_values =
      static_cast<T*>(a.cache.values) + work.kv_head * a.cache.positions * value_size;
  // A warp takes as many whole rows at a time as it has lanes for.
  const auto copy_rows = [&](const T* from, T* to, int size) {
    const int chunks = size / kNumbers;
    const int rows = max(kWarp / chunks, 1), row = lane / chunks;
    if (row >= rows) return;
    for (int p = warp * rows + row; p < old; p += kWarps * rows)
      for (int i = lane - row * chunks; i < chunks; i += kWarp)
        copy_16(to + p * row_stride<T>(size) + i * kNumbers,
                from + (static_cast<int64_t>(begin) + p) * size + i * kNumbers);
  };
  copy_rows(cached_keys, keys, head_size);
  copy_rows(cached_values, values, value_size);
  if (call.cosines != nullptr)
    for (int i = thread; i < 2 * call.pairs; i += kThreads)
      rotations[i] = i < call.pairs ? call.cosines[i] : call.sines[i - call.pairs];
  // Heads that are not there, and values that zero is to be multiplied with.
  for (int i = thread; i < (kHeads - work.heads) * head_size; i += kThreads)
    ready[work.heads * head_size + i] = 0;
  if constexpr (kHalf)
    for (int i = work.count * row_stride<T>(value_size) + thread;
         i < (work.count + 15) / 16 * 16 * row_stride<T>(value_size); i += kThreads)
      values[i] = T(0.0f);
  __syncthreads();

  wait_for_inputs();
  float new_value = 0;  // on its way while the heads are taken
  if (has_new && thread < value_size) new_value = call.v[work.kv_head * value_size + thread];
  // The block that has the new position keeps what comes on the way.
  const int row = warp;
  const bool is_q = row < kHeads;
  if (is_q ? kHalf || row < work.heads : has_new) {
    const TokenAttention::Heads& side = is_q ? call.q : call.k;
    const int offset = (is_q ? work.first_head + row : work.kv_head) * head_size;
    if (!is_q || row < work.heads)
      take_head(call, side.raw + offset, side.norm_weight,
                has_new && side.normed != nullptr ? side.normed + offset : nullptr,
                has_new && side.rotated != nullptr ? side.rotated + offset : nullptr, rotations,
                ready + row * head_size);
    if (!is_q) {
      for (int i = lane; i < head_size; i += kWarp) {
        const T key = stored<T>(ready[row * head_size + i]);
        keys[old * row_stride<T>(head_size) + i] = key;
        if (chunk == 0) cached_keys[static_cast<int64_t>(position) * head_size + i] = key;
      }
    } else if constexpr (kHalf) {
      const float factor = split_head(ready + row * head_size, head_size, a.scale, row, halves);
      if (lane == 0) unscale[row] = factor;
    }
  }
  if (has_new)
    for (int i = thread; i < value_size; i += kThreads) {
      const T value = stored<T>(i == thread ? new_value : call.v[work.kv_head * value_size + i]);
      values[old * row_stride<T>(value_size) + i] = value;
      if (chunk == 0) cached_values[static_cast<int64_t>(position) * value_size + i] = value;
    }
  wait_for_copies();
  __syncthreads();

  if constexpr (kHalf)
    score_halves(a, work, halves, keys, unscale, scores);
  else
    score_floats(a, work, ready, keys, scores);
  __syncthreads();
  if (warp < kHeads) {
    const float x = scores[warp][2 * lane], y = scores[warp][2 * lane + 1];
    const float most = warp_max(fmaxf(x, y));
    const float ex = 2 * lane < work.count ? expf(x - most) : 0.0f;
    const float ey = 2 * lane + 1 < work.count ? expf(y - most) : 0.0f;
    if constexpr (kHalf) {
      constexpr int kStride = row_stride<__half>(kSpan);
      uint32_t high, low;
      ::lockstep::exec::cuda::split(ex, ey, high, low);
      *reinterpret_cast<uint32_t*>(probs + warp * kStride + 2 * lane) = high;
      *reinterpret_cast<uint32_t*>(probs + (warp + kHeads) * kStride + 2 * lane) = low;
    } else {
      scores[warp][2 * lane] = ex;
      scores[warp][2 * lane + 1] = ey;
    }
    const float sum = warp_sum(ex + ey);
    if (lane == 0) {
      largest[warp] = most;
      total[warp] = sum;
    }
  }
  __syncthreads();

  const int splits = last_split - first_split + 1;
  const int64_t stride = value_size + 2;
  float* kept = a.parts + work.first_head * a.splits * stride;  // [head][split][value_size + 2]
  const auto keep = [&](int h, int d, float mix) {
    if (splits == 1)
      a.out[(work.first_head + h) * value_size + d] = mix / total[h];
    else
      kept[(h * a.splits + split) * stride + d] = mix;
  };
  if constexpr (kHalf)
    mix_halves(work, probs, values, keep);
  else
    mix_floats(work, scores, values, reinterpret_cast<float*>(memory + at.mix), keep);
  if (splits == 1) return;
  if (thread < work.heads) {
    kept[(thread * a.splits + split) * stride + value_size] = largest[thread];
    kept[(thread * a.splits + split) * stride + value_size + 1] = total[thread];
  }
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
  const float* parts = kept + (warp * a.splits + first_split) * stride;  // of this warp's head
  float most = -INFINITY;
  for (int s = lane; s < splits; s += kWarp)
    most = fmaxf(most, __ldcg(parts + s * stride + value_size));
  most = warp_max(most);
  for (int d = lane; d < value_size; d += kWarp) {
    float sum = 0, mix = 0;
#pragma unroll 4
    for (int s = 0; s < splits; ++s) {
      const float* from = parts + s * stride;
      const float factor = expf(__ldcg(from + value_size) - most);
      sum = fmaf(factor, __ldcg(from + value_size + 1), sum);
      mix = fmaf(factor, __ldcg(from + d), mix);
    }
    a.out[(work.first_head + warp) * value_size + d] = mix / sum;
  }
}

template <class T>
void run(const TokenAttention& call, cudaStream_t stream) {
  static const bool ready = [] {
    const auto kernel = token_attention_kernel<T>;
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
  launch(token_attention_kernel<T>, grid, kThreads, static_cast<size_t>(places<T>(a).end), stream,
         call);
}

}  // namespace

int multiprocessors_for(const AttentionCall& call) {
  constexpr int64_t kBlocks = 2, kSplits = 2;  // that one holds; of a context that is not long
  const int64_t group = call.heads / call.kv_heads;
  const int64_t blocks = call.kv_heads * ((group + kHeads - 1) / kHeads) * kSplits;
  return static_cast<int>((blocks + kBlocks - 1) / kBlocks);
}

bool fits_token_attention(const AttentionCall& call) {
  const int bytes = call.cache.half ? places<__half>(call).end : places<float>(call).end;
  return call.head_size % 16 == 0 && call.value_size % 8 == 0 && call.span == kSpan &&
         call.cache.positions < INT32_MAX && bytes <= kMostShared;
}

void run_token_attention(const TokenAttention& call, cudaStream_t stream) {
  if (call.attention.cache.half)
    run<__half>(call, stream);
  else
    run<float>(call, stream);
}

}  // namespace lockstep::exec::cuda
