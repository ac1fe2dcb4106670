// Attention of many tokens on the tensor cores. A block takes one key-value head and 128 rows (a
// query head of a token each; 64 where shared memory holds no more), and goes through the positions
// in tiles of 64 that all of them share. Queries and probabilities go as two halves each; keys and
// values are halves already, one or two each: the products are those of single precision, and so
// are the sums.
#include "exec/cuda/kernels.h"
#include "exec/cuda/shared/attention.cuh"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/launch.cuh"
#include "exec/cuda/shared/mma.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kRowsOfWarp = 16;
constexpr int kPositions = 64;           // of a tile
constexpr int kPadding = 8;              // halves after a row, so that eight rows meet in no bank
constexpr int kMostShared = 224 * 1024;  // of a block, beside what is static
constexpr float kLog2OfE = 1.4426950408889634f;

template <bool kSplit>
__device__ __noinline__ float plain_score(const AttentionCall& call, const float* q,
                                          const CacheHead<kSplit>& keys, int64_t p) {
  float sum = 0;
  for (int64_t i = 0; i < call.head_size; ++i) sum = fmaf(q[i], keys.at(p, i), sum);
  return finish_score(call, sum);
}

// One row the slow way, by a warp, from nothing but what it sees: where a number that is not finite
// lies in a tile, zero times it is not zero for the rows that do not see it.
template <bool kSplit>
__device__ __noinline__ void redo_row(const AttentionCall& call, int64_t t, int64_t head) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t kv_head = head / (call.heads / call.kv_heads);
  const Range range = seen_by(call, call.state->first_position + t);
  const float* q = call.q + (t * call.heads + head) * call.head_size;
  const CacheHead<kSplit> keys(call.cache.keys, call.cache.positions, kv_head, call.head_size);
  const CacheHead<kSplit> values(call.cache.values, call.cache.positions, kv_head, call.value_size);
  const auto score = [&](int64_t p) { return plain_score(call, q, keys, p); };
  float most = -INFINITY;
  for (int64_t p = range.begin + lane; p < range.end; p += kWarp) most = fmaxf(most, score(p));
  const float sink = sink_of(call, head);
  most = fmaxf(warp_max(most), sink);
  float total = 0;
  for (int64_t p = range.begin + lane; p < range.end; p += kWarp) total += expf(score(p) - most);
  total = warp_sum(total) + (sink != -INFINITY ? expf(sink - most) : 0.0f);
  float* out = call.out + (t * call.heads + head) * call.value_size;
  for (int64_t d = 0; d < call.value_size; ++d) {
    float mix = 0;
    for (int64_t p = range.begin + lane; p < range.end; p += kWarp)
      mix = fmaf(expf(score(p) - most), values.at(p, d), mix);
    mix = warp_sum(mix);
    if (lane == 0) out[d] = mix / total;
  }
}

// A tile of keys or values in shared memory, as the cache has them.
template <int D, bool kSplit, int kThreads = kWarp>
struct Tile {
  static constexpr int kStride = D + kPadding;
  static constexpr int kBytes = kPositions * kStride * 2 * (kSplit ? 2 : 1);
  __half* high;  // [positions][D]
  __half* low;

  __device__ explicit Tile(unsigned char* memory)
      : high(reinterpret_cast<__half*>(memory)), low(high + kPositions * kStride) {}

  // Positions from `last` on are zeros.
  __device__ void start_copy(const CacheHead<kSplit>& from, int begin, int last) {
    copy(from.high, high, begin, last);
    if constexpr (kSplit) copy(from.low, low, begin, last);
    end_group();
  }

 private:
  static __device__ void copy(const __half* from, __half* to, int begin, int last) {
    constexpr int kAtOnce = 8, kChunks = D / kAtOnce;
    static_assert(kPositions * kChunks % kThreads == 0);
    const __half* first = from + int64_t{begin} * D;
#pragma unroll
    for (int k = 0; k < kPositions * kChunks / kThreads; ++k) {
      const int i = k * kThreads + static_cast<int>(threadIdx.x), p = i / kChunks;
      copy_16(to + i * kAtOnce + p * kPadding, first + i * kAtOnce, begin + p < last);
    }
  }
};

struct TensorCall : AttentionCall {
  unsigned multiprocessors = 0;
};

// Blocks in the order of their work, longest first, except that the first one of each
// multiprocessor goes in the opposite order: with the second it has the same work as the others.
__device__ unsigned turn_of_block(unsigned multiprocessors) {
  const unsigned first = min(gridDim.x, multiprocessors);
  return blockIdx.x < first ? first - 1 - blockIdx.x : blockIdx.x;
}

// Keys have D numbers, values V.
template <int D, int V, bool kSplit>
constexpr int shared_bytes(int warps) {
  return 2 * warps * kRowsOfWarp * Tile<D, kSplit>::kStride * 2 + Tile<D, kSplit>::kBytes +
         Tile<V, kSplit>::kBytes;
}
// Of a block: eight, where shared memory holds the rows of so many.
template <int D, int V, bool kSplit>
constexpr int kWarps = shared_bytes<D, V, kSplit>(8) <= kMostShared ? 8 : 4;
template <int D, int V, bool kSplit>
constexpr int kShared = shared_bytes<D, V, kSplit>(kWarps<D, V, kSplit>);

// kScoresOnly: for who watches, the same scores once more, and nothing but these: keeping them
// would cost the other kernel registers.
template <int D, int V, bool kSplit, bool kScoresOnly>
__global__ void __launch_bounds__(kWarps<D, V, kSplit>* kWarp,
                                  kShared<D, V, kSplit> <= 112 * 1024 ? 2 : 1)
    tensor_attention_kernel(const __grid_constant__ TensorCall call) {
  constexpr int kThreads = kWarps<D, V, kSplit> * kWarp;
  constexpr int kRows = kWarps<D, V, kSplit> * kRowsOfWarp;
  using Keys = Tile<D, kSplit, kThreads>;
  using Values = Tile<V, kSplit, kThreads>;
  constexpr int kStride = Keys::kStride;
  extern __shared__ __align__(16) unsigned char memory[];
  auto* q_high = reinterpret_cast<__half*>(memory);  // [rows][D]
  __half* q_low = q_high + kRows * kStride;          // [rows][D]
  unsigned char* rest = memory + 2 * kRows * kStride * sizeof(__half);
  Keys k(rest);
  Values v(rest + Keys::kBytes);
  // Of a tile that is split: what brings each position back, keys and values.
  __shared__ float unscale_keys[kSplit ? kPositions : 1], unscale_values[kSplit ? kPositions : 1];
  __shared__ int least_shifts[2];             // of values, by half of the tile
  __shared__ float unscale[kRows];            // from products of scaled queries to scores
  __shared__ int begins[kRows], ends[kRows];  // what each row sees
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int group = static_cast<int>(call.heads / call.kv_heads);
  const auto kv_heads = static_cast<unsigned>(call.kv_heads);
  const unsigned turn = turn_of_block(call.multiprocessors);
  const int64_t kv_head = turn % kv_heads;
  const int64_t rows = call.rows * group;
  // The last rows see the most positions: they go first.
  const int64_t first_row = int64_t{gridDim.x / kv_heads - 1 - turn / kv_heads} * kRows;
  const auto token = [&](int64_t row) { return call.first_row + row / group; };
  const auto head = [&](int64_t row) { return kv_head * group + row % group; };
  let_next_start();
  wait_for_inputs();

  {  // queries, two threads a row, times a power of two that brings them into range
    const int row = thread / 2, half = thread % 2;
    const int64_t index = min(first_row + row, rows - 1);
    const float* from = call.q + (token(index) * call.heads + head(index)) * D + half * (D / 2);
    float most = 0;
    for (int i = 0; i < D / 2; i += 4)
      most = fmaxf(most, largest_of(*reinterpret_cast<const float4*>(from + i)));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    const int shift = shift_into_range(most);
    const float scale = power_of_two(shift);
    for (int i = 0; i < D / 2; i += 2) {
      const float2 x = *reinterpret_cast<const float2*>(from + i);
      uint32_t high, low;
      split(x.x * scale, x.y * scale, high, low);
      const int place = row * kStride + half * (D / 2) + i;
      *reinterpret_cast<uint32_t*>(q_high + place) = high;
      *reinterpret_cast<uint32_t*>(q_low + place) = low;
    }
    if (half == 0) {
      unscale[row] = call.scale * power_of_two(-shift);
      const Range range = seen_by(call, call.state->first_position + token(index));
      begins[row] = static_cast<int>(range.begin);
      ends[row] = static_cast<int>(range.end);
    }
  }
  __syncthreads();
  const int last = ends[kRows - 1], all_end = ends[0], all_begin = begins[kRows - 1];
  const CacheHead<kSplit> keys(call.cache.keys, call.cache.positions, kv_head, D);
  const CacheHead<kSplit> values(call.cache.values, call.cache.positions, kv_head, V);
  // The first threads have a key's shift each, the next a value's; those of the next tile are on
  // their way.
  const auto shift_at = [&](int begin) {
    const int p = begin + thread % kPositions;
    if (thread >= 2 * kPositions || p >= last) return kMostShift;
    return static_cast<int>((thread < kPositions ? keys : values).shifts[p]);
  };

  // This thread has the rows `upper` and upper + 8 of the block, and two of each eight columns.
  const int upper = warp * 16 + lane / 4, pair = lane % 4 * 2;
  const float unscales[2] = {unscale[upper], unscale[upper + 8]};
  const int see_from[2] = {begins[upper], begins[upper + 8]};
  const int see_to[2] = {ends[upper], ends[upper + 8]};
  float mix[V / 8][4] = {};
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {};
  if (call.sinks != nullptr) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      most[i] = sink_of(call, head(min(first_row + upper + 8 * i, rows - 1)));
      total[i] = lane % 4 == 0 ? 1 : 0;  // four lanes share a row
    }
  }
  int begin = begins[0] / kPositions * kPositions;
  int value_shift = kMostShift;  // what the sums are times, with the probabilities' bits
  int next_shift = 0;
  if constexpr (kSplit) next_shift = shift_at(begin);
  k.start_copy(keys, begin, last);
  if constexpr (kScoresOnly)
    end_group();
  else
    v.start_copy(values, begin, last);
  for (; begin < last; begin += kPositions) {
    const bool more = begin + kPositions < last;
    if constexpr (kSplit) {
      if (thread < kPositions) {
        unscale_keys[thread] = power_of_two(-next_shift);
      } else if (thread < 2 * kPositions) {
        unscale_values[thread - kPositions] = power_of_two(-next_shift);
        const float least = -warp_max(-static_cast<float>(next_shift));
        if (lane == 0) least_shifts[warp - kPositions / kWarp] = static_cast<int>(least);
      }
      next_shift = shift_at(begin + kPositions);
    }
    wait_for_groups<1>();
    __syncthreads();
    // The tensor cores cut off what a sum has no room for: what is small goes apart, and no sum
    // goes on from tile to tile.
    float scores[kPositions / 8][4] = {};
    float small_scores[kSplit ? kPositions / 8 : 1][4] = {};
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
      Left high, low;
      const int place = (warp * 16 + lane % 16) * kStride + step * 16 + lane / 16 * 8;
      load_matrices<false>(q_high + place, high.words[0], high.words[1], high.words[2],
                           high.words[3]);
      load_matrices<false>(q_low + place, low.words[0], low.words[1], low.words[2], low.words[3]);
#pragma unroll
      for (int n = 0; n < kPositions / 8; n += 2) {
        Right a, b;
        const int from =
            (n * 8 + lane / 16 * 8 + lane % 8) * kStride + step * 16 + lane / 8 % 2 * 8;
        load_matrices<false>(k.high + from, a.words[0], a.words[1], b.words[0], b.words[1]);
        multiply_add(scores[n], high, a);
        multiply_add(scores[n + 1], high, b);
        multiply_add(kSplit ? small_scores[n] : scores[n], low, a);
        multiply_add(kSplit ? small_scores[n + 1] : scores[n + 1], low, b);
        if constexpr (kSplit) {
          load_matrices<false>(k.low + from, a.words[0], a.words[1], b.words[0], b.words[1]);
          multiply_add(small_scores[n], high, a);
          multiply_add(small_scores[n + 1], high, b);
        }
      }
    }
    __syncthreads();  // the keys have been read
    if (more)
      k.start_copy(keys, begin + kPositions, last);
    else
      end_group();

    if constexpr (kSplit) {
#pragma unroll
      for (int n = 0; n < kPositions / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[n][i] += small_scores[n][i];
    }
    const auto for_each_score = [&](auto&& body) {
#pragma unroll
      for (int n = 0; n < kPositions / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) body(scores[n][i], i / 2, n * 8 + pair + i % 2);
    };
    for_each_score([&](float& score, int row, int p) {
      score *= unscales[row];
      if constexpr (kSplit) score *= unscale_keys[p];
    });
    // Apart, so that what is seldom needed is not in the way of the rest.
    if (call.soft_cap > 0)
      for_each_score(
          [&](float& score, int, int) { score = call.soft_cap * tanhf(score / call.soft_cap); });
    if (begin < all_begin || begin + kPositions > all_end)
      for_each_score([&](float& score, int row, int p) {
        if (begin + p < see_from[row] || begin + p >= see_to[row]) score = -INFINITY;
      });
    if constexpr (kScoresOnly) {
      for_each_score([&](float& score, int row, int p) {
        const int64_t index = first_row + upper + 8 * row;
        if (begin + p < see_from[row] || begin + p >= see_to[row] || index >= rows) return;
        const float* q = call.q + (token(index) * call.heads + head(index)) * D;
        keep_score(call, head(index), token(index), begin + p,
                   isfinite(score) ? score : plain_score(call, q, keys, begin + p));
      });
      end_group();
      __syncthreads();  // the scales have been read
      continue;
    }
    float now[2] = {most[0], most[1]};
    for_each_score([&](float& score, int row, int) { now[row] = fmaxf(now[row], score); });
    float shift[2], shrink[2] = {1, 1};  // of the sums so far
    if constexpr (kSplit) {
      const int before = value_shift;
      value_shift = min(before, min(least_shifts[0], least_shifts[1]));
      shrink[0] = shrink[1] = power_of_two(max(value_shift - before, -126));
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      now[i] = fmaxf(now[i], __shfl_xor_sync(~0u, now[i], 1));
      now[i] = fmaxf(now[i], __shfl_xor_sync(~0u, now[i], 2));
      shift[i] = now[i] == -INFINITY ? 0.0f : now[i];
      const float factor = exp2f((most[i] - shift[i]) * kLog2OfE);
      most[i] = now[i];
      total[i] *= factor;
      shrink[i] *= factor;
    }
    for_each_score([&](float& score, int row, int) {
      score = exp2f((score - shift[row]) * kLog2OfE);
      total[row] += score;
    });
    if constexpr (kSplit) {
      const float scale = power_of_two(value_shift + kProbabilityBits);
      for_each_score([&](float& score, int, int p) { score *= unscale_values[p] * scale; });
    }
    wait_for_groups<1>();
    __syncthreads();
    Left high[kPositions / 16], low[kPositions / 16];
#pragma unroll
    for (int step = 0; step < kPositions / 16; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&two)[4] = scores[2 * step + i / 2];
        split(two[i % 2 * 2], two[i % 2 * 2 + 1], high[step].words[i], low[step].words[i]);
      }
#pragma unroll
    for (int d = 0; d < V / 8; d += 2) {
      float sums[2][4] = {}, small_sums[2][4] = {};
#pragma unroll
      for (int step = 0; step < kPositions / 16; ++step) {
        Right a, b;
        const int from = (step * 16 + lane % 16) * Values::kStride + d * 8 + lane / 16 * 8;
        load_matrices<true>(v.high + from, a.words[0], a.words[1], b.words[0], b.words[1]);
        multiply_add(sums[0], high[step], a);
        multiply_add(sums[1], high[step], b);
        multiply_add(small_sums[0], low[step], a);
        multiply_add(small_sums[1], low[step], b);
        if constexpr (kSplit) {
          load_matrices<true>(v.low + from, a.words[0], a.words[1], b.words[0], b.words[1]);
          multiply_add(small_sums[0], high[step], a);
          multiply_add(small_sums[1], high[step], b);
        }
      }
#pragma unroll
      for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          mix[d + k][i] = fmaf(mix[d + k][i], shrink[i / 2], sums[k][i] + small_sums[k][i]);
    }
    __syncthreads();  // the values have been read
    if (more)
      v.start_copy(values, begin + kPositions, last);
    else
      end_group();
  }

  if constexpr (kScoresOnly) return;
  bool fine = true;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    total[i] += __shfl_xor_sync(~0u, total[i], 1);
    total[i] += __shfl_xor_sync(~0u, total[i], 2);
    const int64_t row = first_row + upper + 8 * i;
    if (row >= rows) continue;
    float* out = call.out + (token(row) * call.heads + head(row)) * V;
#pragma unroll
    for (int d = 0; d < V / 8; ++d) {
      float2 two = {mix[d][2 * i] / total[i], mix[d][2 * i + 1] / total[i]};
      if constexpr (kSplit) {
        const float back = power_of_two(-value_shift - kProbabilityBits);
        two = {two.x * back, two.y * back};
      }
      fine = fine && isfinite(two.x) && isfinite(two.y);
      *reinterpret_cast<float2*>(out + d * 8 + pair) = two;
    }
  }
  const uint32_t wrong = __ballot_sync(~0u, !fine);  // by four lanes a pair of rows
  for (int i = 0; wrong != 0 && i < 16; ++i) {
    const int64_t row = first_row + warp * 16 + i;
    if (row < rows && (wrong >> (i % 8 * 4) & 15u) != 0)
      redo_row<kSplit>(call, token(row), head(row));
  }
}

template <int D, int V, bool kSplit, bool kScoresOnly>
bool run(const TensorCall& call, cudaStream_t stream) {
  const auto kernel = tensor_attention_kernel<D, V, kSplit, kScoresOnly>;
  constexpr int kBytes = kShared<D, V, kSplit>;
  constexpr int kRows = kWarps<D, V, kSplit> * kRowsOfWarp;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes) !=
      cudaSuccess) {
    cudaGetLastError();  // an older GPU: the other kernel will do
    return false;
  }
  const int64_t rows = call.rows * (call.heads / call.kv_heads);
  launch(kernel, dim3(static_cast<unsigned>((rows + kRows - 1) / kRows * call.kv_heads)),
         kWarps<D, V, kSplit> * kWarp, kBytes, stream, call);
  return true;
}

template <int D, int V, bool kSplit>
bool run_both(const TensorCall& call, cudaStream_t stream) {
  return run<D, V, kSplit, false>(call, stream) &&
         (call.scores == nullptr || run<D, V, kSplit, true>(call, stream));
}

// Zero where the kernels were compiled for GPUs without such tensor cores.
unsigned count_multiprocessors() {
  int device = 0, count = 0;
  const bool known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
  return known && made_for_hopper() ? static_cast<unsigned>(count) : 0;
}

}  // namespace

bool run_tensor_attention(const AttentionCall& attention, cudaStream_t stream) {
  static const unsigned multiprocessors = count_multiprocessors();
  const TensorCall call{attention, multiprocessors};
  if (multiprocessors == 0 || call.cache.positions >= INT32_MAX) return false;
  const auto run_for = [&]<int D, int V>() {
    return call.cache.split() ? run_both<D, V, true>(call, stream)
                              : run_both<D, V, false>(call, stream);
  };
  if (call.head_size == 192 && call.value_size == 128)
    return run_for.template operator()<192, 128>();
  if (call.head_size != call.value_size) return false;
  switch (call.head_size) {
    case 32:
      return run_for.template operator()<32, 32>();
    case 64:
      return run_for.template operator()<64, 64>();
    case 96:
      return run_for.template operator()<96, 96>();
    case 128:
      return run_for.template operator()<128, 128>();
    case 256:
      return run_for.template operator()<256, 256>();
    default:
      return false;
  }
}

}  // namespace lockstep::exec::cuda
