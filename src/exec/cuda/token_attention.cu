// Attention of one token, with what comes before it: norms of heads, rotation, the cache. A block
// takes one key-value head with up to kHeads of its query heads, and a span of positions, so that
// the order of the sums depends on the position alone. The block that ends last puts the spans
// together. What the cache held before comes in while the projections are still being computed.
#include "exec/cuda/attention.cuh"
#include "exec/cuda/block.cuh"
#include "exec/cuda/launch.cuh"
#include "exec/cuda/pipe.cuh"
#include "exec/cuda/token_calls.h"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kMostHeads = 8;             // of a block
constexpr int kSpan = 64;                 // positions of a block
constexpr int kParts = kThreads / kSpan;  // threads of a position
constexpr int kMostShared = 96 * 1024;

// Shared memory, in bytes: keys and values of the span, q and the new k (first as they come, then
// as they are used), the sums of the values, and the rotations.
struct Places {
  int values, raw, ready, mix, tables, end;
};
__host__ __device__ Places places(const AttentionCall& call) {
  const int number = call.cache.half ? 2 : 4;
  const int head = static_cast<int>(call.head_size), value = static_cast<int>(call.value_size);
  Places out;
  out.values = kSpan * head * number;
  out.raw = out.values + kSpan * value * number;
  out.ready = out.raw + (kMostHeads + 1) * head * 4;
  out.mix = out.ready + (kMostHeads + 1) * head * 4;
  out.tables = out.mix + kMostHeads * max(kThreads * 2, value) * 4;
  out.end = out.tables + head * 4;
  return out;
}

// Rows whose length is a multiple of all banks would meet in the same ones: every other row has the
// halves of each eight chunks of 16 bytes swapped.
__device__ inline int chunk_place(int row, int chunk, int chunks) {
  return row * chunks + (chunks % 8 == 0 ? chunk ^ ((row & 1) * 4) : chunk);
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
                          float* normed, float* rotated, const float* rotations, float* raw,
                          float* ready) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int size = static_cast<int>(call.attention.head_size);
  constexpr int kAtOnce = 4;
  float squares = 0;
  for (int first = lane; first < size; first += kAtOnce * kWarp) {
    float x[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      x[k] = first + k * kWarp < size ? from[first + k * kWarp] : 0.0f;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      squares = fmaf(x[k], x[k], squares);
      if (first + k * kWarp < size) raw[first + k * kWarp] = x[k];
    }
  }
  if (norm_weight != nullptr) {
    const float factor = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(size) + call.epsilon);
    for (int i = lane; i < size; i += kWarp) {
      raw[i] = raw[i] * factor * norm_weight[i];
      if (normed != nullptr) normed[i] = raw[i];
    }
  }
  __syncwarp();
#pragma unroll 2
  for (int i = lane; i < size; i += kWarp) {
    float value = raw[i];
    if (i < 2 * call.pairs) {
      const bool second = call.adjacent ? i % 2 == 1 : i >= call.pairs;
      const int pair = call.adjacent ? i / 2 : second ? i - call.pairs : i;
      const int distance = call.adjacent ? 1 : call.pairs;
      const float c = rotations[pair], s = rotations[call.pairs + pair];
      value = second ? raw[i - distance] * s + value * c : value * c - raw[i + distance] * s;
    }
    if (rotated != nullptr) rotated[i] = value;
    ready[i] = value;
  }
}

template <class T, int H>  // up to H heads
__global__ void __launch_bounds__(kThreads)
    token_attention_kernel(const __grid_constant__ TokenAttention call) {
  const AttentionCall& a = call.attention;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ __align__(16) float scores[kSpan][H];
  __shared__ float largest[H], total[H];
  __shared__ bool is_last;
  let_next_start();
  touch_parameters(call);
  const Places at = places(a);
  constexpr int kNumbers = 16 / sizeof(T);
  T* keys = reinterpret_cast<T*>(memory);
  T* values = reinterpret_cast<T*>(memory + at.values);
  float* raw = reinterpret_cast<float*>(memory + at.raw);      // [heads + 1][head_size], k last
  float* ready = reinterpret_cast<float*>(memory + at.ready);  // the same
  float* sums = reinterpret_cast<float*>(memory + at.mix);
  float* rotations = reinterpret_cast<float*>(memory + at.tables);  // cosines, then sines
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int head_size = static_cast<int>(a.head_size), value_size = static_cast<int>(a.value_size);
  const int group = static_cast<int>(a.heads) / static_cast<int>(a.kv_heads);
  const int head_chunks = (group + H - 1) / H;
  const int kv_head = static_cast<int>(blockIdx.y) / head_chunks;
  const int chunk = static_cast<int>(blockIdx.y) - kv_head * head_chunks;
  const int first_head = kv_head * group + chunk * H;
  const int heads = min(H, group - chunk * H);

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
  const int count = min(position + 1, (split + 1) * kSpan) - begin;
  const bool has_new = split == last_split;
  const int old = count - (has_new ? 1 : 0);
  T* cached_keys = static_cast<T*>(a.cache.keys) + kv_head * a.cache.positions * head_size;
  T* cached_values = static_cast<T*>(a.cache.values) + kv_head * a.cache.positions * value_size;
  const int key_chunks = head_size / kNumbers, value_chunks = value_size / kNumbers;
  {
    const T* from = cached_keys + static_cast<int64_t>(begin) * head_size;
    for (int i = thread; i < old * key_chunks; i += kThreads) {
      const int p = i / key_chunks;
      copy_16(keys + chunk_place(p, i - p * key_chunks, key_chunks) * kNumbers,
              from + i * kNumbers);
    }
    from = cached_values + static_cast<int64_t>(begin) * value_size;
    for (int i = thread; i < old * value_chunks; i += kThreads)
      copy_16(values + i * kNumbers, from + i * kNumbers);
  }
  if (call.cosines != nullptr)
    for (int i = thread; i < 2 * call.pairs; i += kThreads)
      rotations[i] = i < call.pairs ? call.cosines[i] : call.sines[i - call.pairs];
  for (int i = thread; i < (H - heads) * head_size; i += kThreads)
    ready[heads * head_size + i] = 0;  // of heads that are not there
  __syncthreads();

  wait_for_inputs();
  if (has_new)
    for (int i = kThreads - 1 - thread; i < value_size; i += kThreads) {
      const T value = stored<T>(call.v[kv_head * value_size + i]);
      values[old * value_size + i] = value;
      if (chunk == 0) cached_values[static_cast<int64_t>(position) * value_size + i] = value;
    }
  // The block that has the new position keeps what comes on the way.
  for (int row = warp; row < heads + (has_new ? 1 : 0); row += kWarps) {
    const bool is_q = row < heads;
    const TokenAttention::Heads& side = is_q ? call.q : call.k;
    const int offset = (is_q ? first_head + row : kv_head) * head_size;
    const int place = (is_q ? row : H) * head_size;
    take_head(call, side.raw + offset, side.norm_weight,
              has_new && side.normed != nullptr ? side.normed + offset : nullptr,
              has_new && side.rotated != nullptr ? side.rotated + offset : nullptr, rotations,
              raw + place, ready + place);
    if (is_q) continue;
    __syncwarp();
    for (int i = lane; i < head_size; i += kWarp) {
      const T key = stored<T>(ready[place + i]);
      keys[chunk_place(old, i / kNumbers, key_chunks) * kNumbers + i % kNumbers] = key;
      if (chunk == 0) cached_keys[static_cast<int64_t>(position) * head_size + i] = key;
    }
  }
  wait_for_copies();
  __syncthreads();

  {  // kParts neighbouring threads share a position, and add up their chunks' products
    const int p = thread / kParts, part = thread % kParts;
    float dots[H] = {};
    if (p < count)
#pragma unroll 2
      for (int c = part; c < key_chunks; c += kParts) {
        const uint4 words =
            *reinterpret_cast<const uint4*>(keys + chunk_place(p, c, key_chunks) * kNumbers);
        const T* numbers = reinterpret_cast<const T*>(&words);
#pragma unroll
        for (int k = 0; k < kNumbers; k += 4)
#pragma unroll
          for (int h = 0; h < H; ++h) {
            const float4 q =
                *reinterpret_cast<const float4*>(ready + h * head_size + c * kNumbers + k);
            dots[h] = fmaf(q.x, number(numbers[k]), dots[h]);
            dots[h] = fmaf(q.y, number(numbers[k + 1]), dots[h]);
            dots[h] = fmaf(q.z, number(numbers[k + 2]), dots[h]);
            dots[h] = fmaf(q.w, number(numbers[k + 3]), dots[h]);
          }
      }
#pragma unroll
    for (int step = 1; step < kParts; step *= 2)
#pragma unroll
      for (int h = 0; h < H; ++h) dots[h] += __shfl_xor_sync(~0u, dots[h], step);
    if (part == 0)
#pragma unroll
      for (int h = 0; h < H; ++h) scores[p][h] = p < count ? finish_score(a, dots[h]) : -INFINITY;
  }
  __syncthreads();
  if (warp < H) {
    const float x = scores[lane][warp], y = scores[lane + kWarp][warp];
    const float most = warp_max(fmaxf(x, y));
    const float ex = lane < count ? expf(x - most) : 0.0f;
    const float ey = lane + kWarp < count ? expf(y - most) : 0.0f;
    scores[lane][warp] = ex;
    scores[lane + kWarp][warp] = ey;
    const float sum = warp_sum(ex + ey);
    if (lane == 0) {
      largest[warp] = most;
      total[warp] = sum;
    }
  }
  __syncthreads();

  // Two neighbouring numbers of the values a thread; positions in as many parts as there are
  // threads for.
  const int pairs = value_size / 2;
  const int parts = max(1, kThreads / pairs);
  const int part = thread / pairs;
  if (part < parts)
    for (int pair = thread - part * pairs; pair < pairs; pair += kThreads) {
      float mix[H][2] = {};
#pragma unroll 4
      for (int p = part; p < count; p += parts) {
        const T* value = values + p * value_size + 2 * pair;
        const float x = number(value[0]), y = number(value[1]);
#pragma unroll
        for (int h = 0; h < H; ++h) {
          mix[h][0] = fmaf(scores[p][h], x, mix[h][0]);
          mix[h][1] = fmaf(scores[p][h], y, mix[h][1]);
        }
      }
      // [head][part][pair][2]
#pragma unroll
      for (int h = 0; h < H; ++h)
        *reinterpret_cast<float2*>(sums + ((h * parts + part) * pairs + pair) * 2) =
            make_float2(mix[h][0], mix[h][1]);
    }
  __syncthreads();

  const int splits = last_split - first_split + 1;
  const int64_t stride = value_size + 2;
  float* kept = a.parts + first_head * a.splits * stride;  // [head][split][value_size + 2]
  // A head by as many warps as there are for each.
  constexpr int kStep = kThreads / H;
  const int h = thread / kStep;
  if (h < heads)
    for (int d = thread % kStep; d < value_size; d += kStep) {
      float mix = 0;
      for (int i = 0; i < parts; ++i) mix += sums[(h * parts + i) * value_size + d];
      if (splits == 1)
        a.out[(first_head + h) * value_size + d] = mix / total[h];
      else
        kept[(h * a.splits + split) * stride + d] = mix;
    }
  if (splits == 1) return;
  if (thread < heads) {
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
  if (!is_last || h >= heads) return;
  __threadfence();
  const float* part_of_head = kept + (h * a.splits + first_split) * stride;
  float most = -INFINITY;
#pragma unroll 4
  for (int s = 0; s < splits; ++s)
    most = fmaxf(most, __ldcg(part_of_head + s * stride + value_size));
  for (int d = thread % kStep; d < value_size; d += kStep) {
    float sum = 0, mix = 0;
#pragma unroll 4
    for (int s = 0; s < splits; ++s) {
      const float* from = part_of_head + s * stride;
      const float factor = expf(__ldcg(from + value_size) - most);
      sum = fmaf(factor, __ldcg(from + value_size + 1), sum);
      mix = fmaf(factor, __ldcg(from + d), mix);
    }
    a.out[(first_head + h) * value_size + d] = mix / sum;
  }
}

template <class T, int H>
void run(const TokenAttention& call, cudaStream_t stream) {
  static const bool ready = [] {
    const auto kernel = token_attention_kernel<T, H>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
    cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                         cudaSharedmemCarveoutMaxShared);
    return true;
  }();
  static_cast<void>(ready);
  const AttentionCall& a = call.attention;
  const int64_t group = a.heads / a.kv_heads;
  const dim3 grid(static_cast<unsigned>(a.splits),
                  static_cast<unsigned>(a.kv_heads * ((group + H - 1) / H)));
  launch(token_attention_kernel<T, H>, grid, kThreads, static_cast<size_t>(places(a).end), stream,
         call);
}

template <class T>
void run(const TokenAttention& call, cudaStream_t stream) {
  const int64_t group = call.attention.heads / call.attention.kv_heads;
  if (group == 1)
    run<T, 1>(call, stream);
  else if (group == 2)
    run<T, 2>(call, stream);
  else if (group <= 4)
    run<T, 4>(call, stream);
  else
    run<T, kMostHeads>(call, stream);
}

}  // namespace

bool fits_token_attention(const AttentionCall& call) {
  return call.head_size % 8 == 0 && call.value_size % 8 == 0 && call.span == kSpan &&
         call.cache.positions < INT32_MAX && places(call).end <= kMostShared;
}

void run_token_attention(const TokenAttention& call, cudaStream_t stream) {
  if (call.attention.cache.half)
    run<__half>(call, stream);
  else
    run<float>(call, stream);
}

}  // namespace lockstep::exec::cuda
