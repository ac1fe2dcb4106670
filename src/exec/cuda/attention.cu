// Attention over the cache. A block takes one token, one key-value head with up to kHeads of its
// query heads, and a span of positions: all of them, or in generation a fixed number, so that the
// order of the sums depends on the position alone.
#include "exec/cuda/kernels.h"
#include "exec/cuda/shared/attention.cuh"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/launch.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kHeads = 8;
constexpr int kTile = 64;  // positions at a time; four threads each
constexpr int kHeadsOfThread = kHeads * kTile / kThreads;

// Eight numbers of a key, before they are unscaled.
template <bool kSplit>
__device__ inline void load_eight(const CacheHead<kSplit>& keys, int64_t place, float (&out)[8]) {
  const auto add = [&](const __half* from) {
    const uint4 words = *reinterpret_cast<const uint4*>(from + place);
    const __half* numbers = reinterpret_cast<const __half*>(&words);
#pragma unroll
    for (int k = 0; k < 8; ++k) out[k] += __half2float(numbers[k]);
  };
#pragma unroll
  for (float& number : out) number = 0;
  add(keys.high);
  if constexpr (kSplit) add(keys.low);
}

// Scores of position p for several heads, by one thread. 16 bytes of the key at a time where they
// are aligned so.
template <bool kSplit, int H>
__device__ inline void score(const AttentionCall& call, const float* q,
                             const CacheHead<kSplit>& keys, int64_t p, float (&out)[H]) {
#pragma unroll
  for (float& sum : out) sum = 0;
  if (call.head_size % 8 == 0) {
#pragma unroll 4
    for (int64_t i = 0; i < call.head_size; i += 8) {
      float numbers[8];
      load_eight(keys, p * call.head_size + i, numbers);
#pragma unroll
      for (int k = 0; k < 8; k += 4)
#pragma unroll
        for (int h = 0; h < H; ++h) {
          const float4 four = *reinterpret_cast<const float4*>(q + h * call.head_size + i + k);
          out[h] = fmaf(four.x, numbers[k], out[h]);
          out[h] = fmaf(four.y, numbers[k + 1], out[h]);
          out[h] = fmaf(four.z, numbers[k + 2], out[h]);
          out[h] = fmaf(four.w, numbers[k + 3], out[h]);
        }
    }
#pragma unroll
    for (float& sum : out) sum *= keys.unscale(p);
  } else {
    for (int64_t i = 0; i < call.head_size; ++i)
#pragma unroll
      for (int h = 0; h < H; ++h) out[h] = fmaf(q[h * call.head_size + i], keys.at(p, i), out[h]);
  }
#pragma unroll
  for (float& sum : out) sum = finish_score(call, sum);
}

template <bool kSplit, int D>  // D * kThreads numbers of a value, or fewer
__global__ void __launch_bounds__(kThreads)
    attention_kernel(const __grid_constant__ AttentionCall call) {
  let_next_start();
  extern __shared__ __align__(16) float shared_q[];  // [kHeads][head_size], then sums of parts
  __shared__ float scores[kHeads][kTile], largest[kHeads], total[kHeads], shrink[kHeads];
  const int64_t group = call.heads / call.kv_heads;
  const int64_t chunks = (group + kHeads - 1) / kHeads;
  const int64_t kv_head = blockIdx.y / chunks;
  const int64_t first_head = kv_head * group + blockIdx.y % chunks * kHeads;
  const int heads = static_cast<int>(min(int64_t{kHeads}, (kv_head + 1) * group - first_head));
  const int64_t t = call.first_row + blockIdx.z;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;

  wait_for_inputs();
  Range range = seen_by(call, call.state->first_position + t);
  if (call.splits > 1) {
    range.begin = max(range.begin, int64_t{blockIdx.x} * call.span);
    range.end = min(range.end, (int64_t{blockIdx.x} + 1) * call.span);
  }
  const CacheHead<kSplit> keys(call.cache.keys, call.cache.positions, kv_head, call.head_size);
  const CacheHead<kSplit> values(call.cache.values, call.cache.positions, kv_head, call.value_size);
  const float* q = call.q + (t * call.heads + first_head) * call.head_size;
  for (int64_t i = thread; i < kHeads * call.head_size; i += kThreads)
    shared_q[i] = i < heads * call.head_size ? q[i] : 0.0f;
  if (thread < kHeads) {
    // A sink counts once: where there are several spans, when they are put together.
    const bool sink = call.sinks != nullptr && call.splits == 1 && thread < heads;
    largest[thread] = sink ? call.sinks[first_head + thread] : -INFINITY;
    total[thread] = sink ? 1 : 0;
  }
  // Where values are short, the threads take several positions side by side.
  const int parts = D > 1 ? 1 : static_cast<int>(max(int64_t{1}, kThreads / call.value_size));
  const int part = D > 1 ? 0 : thread / static_cast<int>(call.value_size);
  const int64_t first_place = D > 1 ? thread : thread % call.value_size;
  float mix[kHeads][D] = {};
  for (int i = thread; i < kHeads * kTile; i += kThreads) scores[i / kTile][i % kTile] = 0;
  __syncthreads();

  for (int64_t begin = range.begin; begin < range.end; begin += kTile) {
    const int count = static_cast<int>(min(int64_t{kTile}, range.end - begin));
    if (const int p = thread % kTile; p < count) {
      const int first = thread / kTile * kHeadsOfThread;
      float sums[kHeadsOfThread];
      if (first < heads) {
        score(call, shared_q + first * call.head_size, keys, begin + p, sums);
#pragma unroll
        for (int h = 0; h < kHeadsOfThread; ++h) {
          scores[first + h][p] = sums[h];
          if (call.scores != nullptr && first + h < heads)
            keep_score(call, first_head + first + h, t, begin + p, sums[h]);
        }
      }
    }
    __syncthreads();
    for (int h = warp; h < heads; h += kWarps) {
      const float a = lane < count ? scores[h][lane] : -INFINITY;
      const float b = lane + kWarp < count ? scores[h][lane + kWarp] : -INFINITY;
      const float before = largest[h];
      const float now = fmaxf(before, warp_max(fmaxf(a, b)));
      const float ea = lane < count ? expf(a - now) : 0.0f;
      const float eb = lane + kWarp < count ? expf(b - now) : 0.0f;
      const float sum = warp_sum(ea + eb);
      scores[h][lane] = ea;
      scores[h][lane + kWarp] = eb;
      __syncwarp();  // all have read what the first overwrites
      if (lane == 0) {
        const float factor = before == -INFINITY ? 0.0f : expf(before - now);
        shrink[h] = factor;
        total[h] = total[h] * factor + sum;
        largest[h] = now;
      }
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float factor = h < heads ? shrink[h] : 0.0f;
#pragma unroll
      for (int d = 0; d < D; ++d) mix[h][d] *= factor;
    }
    if (D > 1 || thread < parts * call.value_size) {
#pragma unroll 8
      for (int p = part; p < count; p += parts) {
#pragma unroll
        for (int d = 0; d < D; ++d) {
          const int64_t place = first_place + d * kThreads;
          const float v = D == 1 || place < call.value_size ? values.at(begin + p, place) : 0.0f;
#pragma unroll
          for (int h = 0; h < kHeads; ++h) mix[h][d] = fmaf(scores[h][p], v, mix[h][d]);
        }
      }
    }
    __syncthreads();
  }
  if (parts > 1) {  // together in the first part's threads, in order
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h >= heads) break;
      if (thread < parts * call.value_size) shared_q[thread] = mix[h][0];
      __syncthreads();
      if (thread < call.value_size)
        for (int i = 1; i < parts; ++i)
          mix[h][0] += shared_q[i * static_cast<int>(call.value_size) + thread];
      __syncthreads();
    }
  }

#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (h >= heads) continue;
    const int64_t head = first_head + h;
    if (call.splits == 1) {
      float* out = call.out + (t * call.heads + head) * call.value_size;
#pragma unroll
      for (int d = 0; d < D; ++d)
        if (const int64_t place = thread + d * kThreads; place < call.value_size)
          out[place] = mix[h][d] / total[h];
    } else {
      float* out =
          call.parts + (((t - call.first_row) * call.heads + head) * call.splits + blockIdx.x) *
                           (call.value_size + 2);
#pragma unroll
      for (int d = 0; d < D; ++d)
        if (const int64_t place = thread + d * kThreads; place < call.value_size)
          out[place] = mix[h][d];
      if (thread == 0) {
        out[call.value_size] = largest[h];
        out[call.value_size + 1] = total[h];
      }
    }
  }
}

// Puts the spans' results together: a block a head and token.
__global__ void combine_kernel(const __grid_constant__ AttentionCall call) {
  let_next_start();
  wait_for_inputs();
  const int64_t head = blockIdx.x, t = blockIdx.y;
  const int64_t stride = call.value_size + 2;
  const float* parts = call.parts + (t * call.heads + head) * call.splits * stride;
  const float sink = sink_of(call, head);
  float largest = sink;
  for (int64_t s = 0; s < call.splits; ++s)
    largest = fmaxf(largest, parts[s * stride + call.value_size]);
  float total = sink != -INFINITY ? expf(sink - largest) : 0.0f;
  for (int64_t s = 0; s < call.splits; ++s) {
    const float part = parts[s * stride + call.value_size];
    if (part != -INFINITY)
      total = fmaf(expf(part - largest), parts[s * stride + call.value_size + 1], total);
    else
      total += parts[s * stride + call.value_size + 1];  // zero, or not a number
  }
  float* out = call.out + ((call.first_row + t) * call.heads + head) * call.value_size;
  for (int64_t i = threadIdx.x; i < call.value_size; i += blockDim.x) {
    float mix = 0;
    for (int64_t s = 0; s < call.splits; ++s) {
      const float part = parts[s * stride + call.value_size];
      const float factor = part != -INFINITY ? expf(part - largest) : 1.0f;
      mix = fmaf(factor, parts[s * stride + i], mix);
    }
    out[i] = mix / total;
  }
}

// For who watches: a block a head and token.
__global__ void __launch_bounds__(kThreads)
    probs_kernel(const __grid_constant__ AttentionCall call) {
  let_next_start();
  wait_for_inputs();
  __shared__ float shared[kWarps];
  const int64_t head = blockIdx.x, t = blockIdx.y;
  const Range range = seen_by(call, call.state->first_position + t);
  const int64_t place = (head * call.tokens + t) * call.positions;
  float* scores = call.scores + place;
  float* probs = call.probs + place;
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t p = thread; p < call.positions; p += kThreads)
    if (p < range.begin || p >= range.end) scores[p] = -INFINITY;
  const float sink = sink_of(call, head);
  float largest = sink;  // by every thread alike
  for (int64_t p = range.begin; p < range.end; ++p) largest = fmaxf(largest, scores[p]);
  float sum = 0;
  for (int64_t p = range.begin + thread; p < range.end; p += kThreads)
    sum += expf(scores[p] - largest);
  sum = block_sum(sum, shared) + (sink != -INFINITY ? expf(sink - largest) : 0.0f);
  for (int64_t p = thread; p < call.positions; p += kThreads)
    probs[p] = p >= range.begin && p < range.end ? expf(scores[p] - largest) / sum : 0.0f;
}

template <bool kSplit>
void launch_all(const AttentionCall& call, cudaStream_t stream) {
  const int64_t group = call.heads / call.kv_heads;
  const auto heads = static_cast<unsigned>(call.heads);
  const auto rows = static_cast<unsigned>(call.rows);
  const dim3 grid(static_cast<unsigned>(call.splits),
                  static_cast<unsigned>(call.kv_heads * ((group + kHeads - 1) / kHeads)), rows);
  const auto shared =
      static_cast<size_t>(max(kHeads * call.head_size, int64_t{kThreads})) * sizeof(float);
  const bool prompt = call.splits == 1 && rows > 1 &&
                      (run_tensor_attention(call, stream) || run_prompt_attention(call, stream));
  if (!prompt)
    launch(call.value_size <= kThreads ? attention_kernel<kSplit, 1> : attention_kernel<kSplit, 2>,
           grid, kThreads, shared, stream, call);
  if (call.splits > 1) launch(combine_kernel, dim3(heads, rows), kThreads, 0, stream, call);
}

}  // namespace

void run_attention(const AttentionCall& call, cudaStream_t stream) {
  if (call.cache.split())
    launch_all<true>(call, stream);
  else
    launch_all<false>(call, stream);
}

void run_probs(const AttentionCall& call, cudaStream_t stream) {
  launch(probs_kernel, dim3(static_cast<unsigned>(call.heads), static_cast<unsigned>(call.tokens)),
         kThreads, 0, stream, call);
}

}  // namespace lockstep::exec::cuda
