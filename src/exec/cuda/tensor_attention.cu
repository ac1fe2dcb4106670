// Attention of many tokens on the tensor cores. A block takes one key-value head and 128 rows (a
// query head of a token each), and goes through the positions in tiles of 64 that all of them
// share. Queries and probabilities go as two halves each. Keys and values are halves already, or go
// as two as well: the products are those of single precision, and so are the sums.
#include "exec/cuda/attention.cuh"
#include "exec/cuda/block.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/launch.cuh"
#include "exec/cuda/mma.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 128;      // of a block, 16 a warp
constexpr int kPositions = 64;  // of a tile
constexpr int kPadding = 8;     // halves after a row, so that eight rows meet in no bank
constexpr float kLog2OfE = 1.4426950408889634f;

// One row the slow way, by a warp, from nothing but what it sees: where a number that is not finite
// lies in a tile, zero times it is not zero for the rows that do not see it.
template <class T>
__device__ __noinline__ void redo_row(const AttentionCall& call, int64_t t, int64_t head) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t kv_head = head / (call.heads / call.kv_heads);
  const Range range = seen_by(call, call.state->first_position + t);
  const float* q = call.q + (t * call.heads + head) * call.head_size;
  const T* keys =
      static_cast<const T*>(call.cache.keys) + kv_head * call.cache.positions * call.head_size;
  const T* values =
      static_cast<const T*>(call.cache.values) + kv_head * call.cache.positions * call.value_size;
  const auto score = [&](int64_t p) {
    float sum = 0;
    for (int64_t i = 0; i < call.head_size; ++i)
      sum = fmaf(q[i], static_cast<float>(keys[p * call.head_size + i]), sum);
    return finish_score(call, sum);
  };
  float most = -INFINITY;
  for (int64_t p = range.begin + lane; p < range.end; p += kWarp) most = fmaxf(most, score(p));
  most = warp_max(most);
  float total = 0;
  for (int64_t p = range.begin + lane; p < range.end; p += kWarp) total += expf(score(p) - most);
  total = warp_sum(total);
  float* out = call.out + (t * call.heads + head) * call.value_size;
  for (int64_t d = 0; d < call.value_size; ++d) {
    float mix = 0;
    for (int64_t p = range.begin + lane; p < range.end; p += kWarp)
      mix = fmaf(expf(score(p) - most), static_cast<float>(values[p * call.value_size + d]), mix);
    mix = warp_sum(mix);
    if (lane == 0) out[d] = mix / total;
  }
}

// A tile of keys or values in shared memory, times 2^shift.
template <int D, class T>
struct Tile {
  static constexpr int kStride = D + kPadding;
  static constexpr bool kSplit = sizeof(T) == 4;
  static constexpr int kBytes = kPositions * (kStride * 2 * (kSplit ? 2 : 1) +
                                              (kSplit ? D * static_cast<int>(sizeof(T)) : 0));

  T* raw;        // [positions][D] on its way, where it is split afterwards
  __half* high;  // [positions][D]
  __half* low;
  int shift = 0;

  __device__ explicit Tile(unsigned char* memory)
      : raw(reinterpret_cast<T*>(memory)),
        high(reinterpret_cast<__half*>(memory + (kSplit ? kPositions * D * sizeof(T) : 0))),
        low(high + kPositions * kStride) {}

  // Four threads take a position, each every fourth 16 bytes of it. Positions from `last` on are
  // zeros.
  static constexpr int kOfThread = 16 / sizeof(T);
  template <class Visitor>
  static __device__ void visit(Visitor&& visitor) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = thread % 4 * kOfThread; i < D; i += 4 * kOfThread) visitor(thread / 4, i);
  }
  __device__ void start_copy(const T* from, int begin, int last) {
    visit([&](int p, int i) {
      void* place = raw + p * D + i;
      if constexpr (!kSplit) place = high + p * kStride + i;
      if (begin + p < last)
        copy_16(place, from + (int64_t{begin} + p) * D + i);
      else
        *static_cast<uint4*>(place) = make_uint4(0, 0, 0, 0);
    });
    end_group();
  }
  // What this thread has copied, as two halves each; `most_shift` is what the tile may be shifted
  // by. By all threads; `shared` has a place for each warp.
  __device__ void split_into_halves(int most_shift, float* shared) {
    float most = 0;
    const auto four = [&](int p, int i) {
      return *reinterpret_cast<const float4*>(raw + p * D + i);
    };
    visit([&](int p, int i) {
      const float4 x = four(p, i);
      most = fmaxf(most, fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w))));
    });
    most = warp_max(most);
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = most;
    __syncthreads();
    for (int i = 0; i < kThreads / kWarp; ++i) most = fmaxf(most, shared[i]);
    shift = min(most_shift, shift_into_range(most));
    const float scale = power_of_two(shift);
    visit([&](int p, int i) {
      const float4 x = four(p, i);
      uint2 upper, lower;
      split(x.x * scale, x.y * scale, upper.x, lower.x);
      split(x.z * scale, x.w * scale, upper.y, lower.y);
      *reinterpret_cast<uint2*>(high + p * kStride + i) = upper;
      *reinterpret_cast<uint2*>(low + p * kStride + i) = lower;
    });
  }
};

template <int D, class T>
constexpr int kShared = 2 * kRows* Tile<D, T>::kStride * 2 + 2 * Tile<D, T>::kBytes;

template <int D, class T>
__global__ void __launch_bounds__(kThreads, kShared<D, T> <= 112 * 1024 ? 2 : 1)
    tensor_attention_kernel(const __grid_constant__ AttentionCall call) {
  using Tile = Tile<D, T>;
  constexpr int kStride = Tile::kStride;
  extern __shared__ __align__(16) unsigned char memory[];
  auto* q_high = reinterpret_cast<__half*>(memory);  // [rows][D]
  __half* q_low = q_high + kRows * kStride;          // [rows][D]
  unsigned char* rest = memory + 2 * kRows * kStride * sizeof(__half);
  Tile k(rest), v(rest + Tile::kBytes);
  __shared__ float mosts[2][kThreads / kWarp];
  __shared__ float unscale[kRows];            // from products of scaled queries to scores
  __shared__ int begins[kRows], ends[kRows];  // what each row sees
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int group = static_cast<int>(call.heads / call.kv_heads);
  const int64_t kv_head = blockIdx.y;
  const int64_t rows = call.rows * group;
  // The last rows see the most positions: they start first.
  const int64_t first_row = (int64_t{gridDim.x} - 1 - blockIdx.x) * kRows;
  const auto token = [&](int64_t row) { return call.first_row + row / group; };
  const auto head = [&](int64_t row) { return kv_head * group + row % group; };
  let_next_start();
  wait_for_inputs();

  {  // queries, two threads a row, times a power of two that brings them into range
    const int row = thread / 2, half = thread % 2;
    const int64_t index = min(first_row + row, rows - 1);
    const float* from = call.q + (token(index) * call.heads + head(index)) * D + half * (D / 2);
    float most = 0;
    for (int i = 0; i < D / 2; i += 4) {
      const float4 x = *reinterpret_cast<const float4*>(from + i);
      most = fmaxf(most, fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w))));
    }
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
  const T* keys = static_cast<const T*>(call.cache.keys) + kv_head * call.cache.positions * D;
  const T* values = static_cast<const T*>(call.cache.values) + kv_head * call.cache.positions * D;

  // This thread has the rows `upper` and upper + 8 of the block, and two of each eight columns.
  const int upper = warp * 16 + lane / 4, pair = lane % 4 * 2;
  const float unscales[2] = {unscale[upper], unscale[upper + 8]};
  const int see_from[2] = {begins[upper], begins[upper + 8]};
  const int see_to[2] = {ends[upper], ends[upper + 8]};
  float mix[D / 8][4] = {};
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {};
  int begin = begins[0] / kPositions * kPositions;
  if constexpr (Tile::kSplit) v.shift = kMostShift;
  k.start_copy(keys, begin, last);
  v.start_copy(values, begin, last);
  for (; begin < last; begin += kPositions) {
    const bool more = begin + kPositions < last;
    wait_for_groups<1>();
    if constexpr (Tile::kSplit) {
      k.split_into_halves(kMostShift, mosts[0]);
      // Each thread splits what it has copied: there is room for the next.
      if (more)
        k.start_copy(keys, begin + kPositions, last);
      else
        end_group();
    }
    __syncthreads();
    float scores[kPositions / 8][4] = {};
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
        multiply_add(scores[n], low, a);
        multiply_add(scores[n + 1], high, b);
        multiply_add(scores[n + 1], low, b);
        if constexpr (Tile::kSplit) {
          load_matrices<false>(k.low + from, a.words[0], a.words[1], b.words[0], b.words[1]);
          multiply_add(scores[n], high, a);
          multiply_add(scores[n + 1], high, b);
        }
      }
    }
    if constexpr (!Tile::kSplit) {
      __syncthreads();  // the keys have been read
      if (more)
        k.start_copy(keys, begin + kPositions, last);
      else
        end_group();
    }

    const float unscale_keys = power_of_two(-k.shift);
    const bool all_seen = begin >= all_begin && begin + kPositions <= all_end;
    float now[2] = {most[0], most[1]};
#pragma unroll
    for (int n = 0; n < kPositions / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float score = scores[n][i] * unscales[i / 2];
        if constexpr (Tile::kSplit) score *= unscale_keys;
        if (call.soft_cap > 0) score = call.soft_cap * tanhf(score / call.soft_cap);
        const int position = begin + n * 8 + pair + i % 2;
        if (!all_seen && (position < see_from[i / 2] || position >= see_to[i / 2]))
          score = -INFINITY;
        scores[n][i] = score;
        now[i / 2] = fmaxf(now[i / 2], score);
      }
    float shift[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      now[i] = fmaxf(now[i], __shfl_xor_sync(~0u, now[i], 1));
      now[i] = fmaxf(now[i], __shfl_xor_sync(~0u, now[i], 2));
      shift[i] = now[i] == -INFINITY ? 0.0f : now[i];
      const float factor = exp2f((most[i] - shift[i]) * kLog2OfE);
      most[i] = now[i];
      total[i] *= factor;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) {
        mix[d][2 * i] *= factor;
        mix[d][2 * i + 1] *= factor;
      }
    }
#pragma unroll
    for (int n = 0; n < kPositions / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = exp2f((scores[n][i] - shift[i / 2]) * kLog2OfE);
        total[i / 2] += scores[n][i];
      }
    wait_for_groups<1>();
    if constexpr (Tile::kSplit) {
      const int before = v.shift;
      v.split_into_halves(before, mosts[1]);
      if (v.shift != before) {
        const float change = power_of_two(max(v.shift - before, -126));
#pragma unroll
        for (int d = 0; d < D / 8; ++d)
#pragma unroll
          for (float& sum : mix[d]) sum *= change;
      }
      if (more)
        v.start_copy(values, begin + kPositions, last);
      else
        end_group();
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kPositions / 16; ++step) {
      Left high, low;
      split(scores[2 * step][0], scores[2 * step][1], high.words[0], low.words[0]);
      split(scores[2 * step][2], scores[2 * step][3], high.words[1], low.words[1]);
      split(scores[2 * step + 1][0], scores[2 * step + 1][1], high.words[2], low.words[2]);
      split(scores[2 * step + 1][2], scores[2 * step + 1][3], high.words[3], low.words[3]);
#pragma unroll
      for (int d = 0; d < D / 8; d += 2) {
        Right a, b;
        const int from = (step * 16 + lane % 16) * kStride + d * 8 + lane / 16 * 8;
        load_matrices<true>(v.high + from, a.words[0], a.words[1], b.words[0], b.words[1]);
        multiply_add(mix[d], high, a);
        multiply_add(mix[d], low, a);
        multiply_add(mix[d + 1], high, b);
        multiply_add(mix[d + 1], low, b);
        if constexpr (Tile::kSplit) {
          load_matrices<true>(v.low + from, a.words[0], a.words[1], b.words[0], b.words[1]);
          multiply_add(mix[d], high, a);
          multiply_add(mix[d + 1], high, b);
        }
      }
    }
    __syncthreads();  // keys and values have been read
    if constexpr (!Tile::kSplit) {
      if (more)
        v.start_copy(values, begin + kPositions, last);
      else
        end_group();
    }
  }

  bool fine = true;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    total[i] += __shfl_xor_sync(~0u, total[i], 1);
    total[i] += __shfl_xor_sync(~0u, total[i], 2);
    const int64_t row = first_row + upper + 8 * i;
    if (row >= rows) continue;
    float* out = call.out + (token(row) * call.heads + head(row)) * D;
#pragma unroll
    for (int d = 0; d < D / 8; ++d) {
      const float unscale_values = power_of_two(-v.shift);
      const float2 two = {mix[d][2 * i] / total[i] * unscale_values,
                          mix[d][2 * i + 1] / total[i] * unscale_values};
      fine = fine && isfinite(two.x) && isfinite(two.y);
      *reinterpret_cast<float2*>(out + d * 8 + pair) = two;
    }
  }
  const uint32_t wrong = __ballot_sync(~0u, !fine);  // by four lanes a pair of rows
  for (int i = 0; wrong != 0 && i < 16; ++i) {
    const int64_t row = first_row + warp * 16 + i;
    if (row < rows && (wrong >> (i % 8 * 4) & 15u) != 0) redo_row<T>(call, token(row), head(row));
  }
}

template <int D, class T>
bool run(const AttentionCall& call, cudaStream_t stream) {
  const auto kernel = tensor_attention_kernel<D, T>;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared<D, T>) !=
      cudaSuccess) {
    cudaGetLastError();  // an older GPU: the other kernel will do
    return false;
  }
  const int64_t rows = call.rows * (call.heads / call.kv_heads);
  launch(
      kernel,
      dim3(static_cast<unsigned>((rows + kRows - 1) / kRows), static_cast<unsigned>(call.kv_heads)),
      kThreads, kShared<D, T>, stream, call);
  return true;
}

bool has_tensor_cores_for_it() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 8;
}

}  // namespace

bool run_tensor_attention(const AttentionCall& call, cudaStream_t stream) {
  static const bool can = has_tensor_cores_for_it();
  if (!can || call.head_size != call.value_size || call.cache.positions >= INT32_MAX) return false;
  const auto run_for = [&]<int D>() {
    return call.cache.half ? run<D, __half>(call, stream) : run<D, float>(call, stream);
  };
  switch (call.head_size) {
    case 32:
      return run_for.template operator()<32>();
    case 64:
      return run_for.template operator()<64>();
    case 96:
      return run_for.template operator()<96>();
    case 128:
      return run_for.template operator()<128>();
    default:
      return false;
  }
}

}  // namespace lockstep::exec::cuda
