// Attention of many tokens: a block takes one key-value head and 64 columns (a query head of a
// token each), and goes through the positions in tiles of 32 that all of them share.
#include "exec/cuda/kernels.h"
#include "exec/cuda/shared/attention.cuh"
#include "exec/cuda/shared/launch.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 64, kPositions = 32;
constexpr int kPadding = 4;
constexpr int kLongest = 128;         // of a head
constexpr int kDims = kLongest / 16;  // of a value, for a thread

struct Sizes {
  int q, k, v, s;  // floats
};
__host__ __device__ Sizes sizes(int64_t head_size, int64_t value_size) {
  return {static_cast<int>(head_size) * (kColumns + kPadding),
          static_cast<int>(head_size) * (kPositions + kPadding),
          kPositions * static_cast<int>(value_size), kPositions * (kColumns + kPadding)};
}

template <bool kSplit>
__global__ void __launch_bounds__(kThreads)
    prompt_kernel(const __grid_constant__ AttentionCall call) {
  let_next_start();
  extern __shared__ __align__(16) float memory[];
  const int head_size = static_cast<int>(call.head_size);
  const int value_size = static_cast<int>(call.value_size);
  const Sizes size = sizes(head_size, value_size);
  float* q = memory;      // [head_size][columns]
  float* k = q + size.q;  // [head_size][positions]
  float* v = k + size.k;  // [positions][value_size]
  float* s = v + size.v;  // [positions][columns]
  constexpr int kQ = kColumns + kPadding, kK = kPositions + kPadding;
  __shared__ float largest[kColumns], total[kColumns], shrink[kColumns];
  __shared__ Range ranges[kColumns];

  const int thread = static_cast<int>(threadIdx.x);
  const int group = static_cast<int>(call.heads / call.kv_heads);
  const int64_t kv_head = blockIdx.y;
  const int64_t columns = call.rows * group;
  // The last columns see the most positions: they start first.
  const int64_t first_column = (int64_t{gridDim.x} - 1 - blockIdx.x) * kColumns;
  const auto token = [&](int64_t column) { return call.first_row + column / group; };
  const auto head = [&](int64_t column) { return kv_head * group + column % group; };

  wait_for_inputs();
  const int64_t first_position = call.state->first_position;
  if (thread < kColumns) {
    const int64_t column = min(first_column + thread, columns - 1);
    ranges[thread] = seen_by(call, first_position + token(column));
    largest[thread] = sink_of(call, head(column));
    total[thread] = call.sinks != nullptr ? 1 : 0;
  }
  for (int i = thread; i < kColumns * head_size; i += kThreads) {
    const int c = i / head_size, d = i % head_size;
    const int64_t column = first_column + c;
    q[d * kQ + c] = column < columns
                        ? call.q[(token(column) * call.heads + head(column)) * head_size + d]
                        : 0.0f;
  }
  const CacheHead<kSplit> keys(call.cache.keys, call.cache.positions, kv_head, head_size);
  const CacheHead<kSplit> values(call.cache.values, call.cache.positions, kv_head, value_size);
  __syncthreads();

  float mix[4][kDims] = {};
  const int c4 = thread % 16 * 4, row = thread / 16;
  const int64_t last = ranges[kColumns - 1].end;
  for (int64_t begin = ranges[0].begin; begin < last; begin += kPositions) {
    const int count = static_cast<int>(min(int64_t{kPositions}, last - begin));
    bool wild = false;  // a value that is not finite: zero times it is not zero
    for (int i = thread; i < kPositions * head_size; i += kThreads) {
      const int p = i / head_size, d = i % head_size;
      k[d * kK + p] = p < count ? keys.at(begin + p, d) : 0.0f;
    }
    for (int i = thread; i < kPositions * value_size; i += kThreads) {
      const int p = i / value_size;
      const float value = p < count ? values.at(begin + p, i - p * value_size) : 0.0f;
      wild |= !isfinite(value);
      v[i] = value;
    }
    wild = __syncthreads_or(wild);

    float sums[2][4] = {};
    for (int d = 0; d < head_size; ++d) {
      const float4 a = *reinterpret_cast<const float4*>(q + d * kQ + c4);
      const float2 b = *reinterpret_cast<const float2*>(k + d * kK + row * 2);
      const float as[4] = {a.x, a.y, a.z, a.w}, bs[2] = {b.x, b.y};
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(as[j], bs[i], sums[i][j]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t position = begin + row * 2 + i;
        const Range range = ranges[c4 + j];
        const bool sees = position >= range.begin && position < range.end;
        const float score = sees ? finish_score(call, sums[i][j]) : -INFINITY;
        s[(row * 2 + i) * kQ + c4 + j] = score;
        if (const int64_t column = first_column + c4 + j;
            call.scores != nullptr && sees && column < columns)
          keep_score(call, head(column), token(column), position, score);
      }
    __syncthreads();

    {  // four threads a column
      const int c = thread / 4, first = thread % 4 * (kPositions / 4);
      const Range range = ranges[c];
      float most = -INFINITY;
      for (int p = first; p < first + kPositions / 4; ++p) most = fmaxf(most, s[p * kQ + c]);
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const float before = largest[c], now = fmaxf(before, most);
      float sum = 0;
      for (int p = first; p < first + kPositions / 4; ++p) {
        const bool sees = begin + p >= range.begin && begin + p < range.end;
        const float e = sees ? expf(s[p * kQ + c] - now) : 0.0f;
        s[p * kQ + c] = e;
        sum += e;
      }
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      __syncwarp();  // all have read what the first overwrites
      if (thread % 4 == 0) {
        const float factor = before == -INFINITY ? 0.0f : expf(before - now);
        shrink[c] = factor;
        total[c] = total[c] * factor + sum;
        largest[c] = now;
      }
    }
    __syncthreads();

    const float4 f = *reinterpret_cast<const float4*>(shrink + c4);
    const float factors[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int d = 0; d < kDims; ++d) mix[j][d] *= factors[j];
    for (int p = 0; p < count; ++p) {
      const float4 a = *reinterpret_cast<const float4*>(s + p * kQ + c4);
      const float as[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int d = 0; d < kDims; ++d) {
        const int place = row + 16 * d;
        if (place >= value_size) break;
        const float value = v[p * value_size + place];
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (!wild || as[j] != 0) mix[j][d] = fmaf(as[j], value, mix[j][d]);
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t column = first_column + c4 + j;
    if (column >= columns) continue;
    float* out = call.out + (token(column) * call.heads + head(column)) * value_size;
#pragma unroll
    for (int d = 0; d < kDims; ++d)
      if (row + 16 * d < value_size) out[row + 16 * d] = mix[j][d] / total[c4 + j];
  }
}

template <bool kSplit>
bool run(const AttentionCall& call, cudaStream_t stream) {
  const Sizes size = sizes(call.head_size, call.value_size);
  const int bytes = (size.q + size.k + size.v + size.s) * static_cast<int>(sizeof(float));
  if (cudaFuncSetAttribute(prompt_kernel<kSplit>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           bytes) != cudaSuccess) {
    cudaGetLastError();  // an older GPU: the other kernel will do
    return false;
  }
  const int64_t columns = call.rows * (call.heads / call.kv_heads);
  const dim3 grid(static_cast<unsigned>((columns + kColumns - 1) / kColumns),
                  static_cast<unsigned>(call.kv_heads));
  launch(prompt_kernel<kSplit>, grid, kThreads, static_cast<size_t>(bytes), stream, call);
  return true;
}

}  // namespace

bool run_prompt_attention(const AttentionCall& call, cudaStream_t stream) {
  if (call.head_size > kLongest || call.value_size > kLongest) return false;
  return call.cache.split() ? run<true>(call, stream) : run<false>(call, stream);
}

}  // namespace lockstep::exec::cuda
