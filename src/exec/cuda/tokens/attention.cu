// Attention of one token, with what comes before it: norms of heads, rotation, the cache. A block
// takes one key-value head with up to kHeads of its query heads, and a span of positions, so that
// the order of the sums depends on the position alone. The block that ends last puts the spans
// together. What the cache held before comes in while the projections are still being computed. All
// products run on the tensor cores: queries and probabilities go as two halves, and so do keys and
// values where the cache has them so.
#include "exec/cuda/shared/launch.cuh"
#include "exec/cuda/tokens/attention.cuh"

namespace lockstep::exec::cuda {
namespace {

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
  return call.sinks == nullptr && call.head_size % 16 == 0 && call.value_size % 8 == 0 &&
         call.span == kSpan && call.cache.positions < INT32_MAX && bytes <= kMostShared &&
         (!call.cache.split() || max(call.head_size, call.value_size) <= SplitRow::kLongest);
}

void run_token_attention(const TokenAttention& call, cudaStream_t stream) {
  if (call.attention.cache.split())
    run<true>(call, stream);
  else
    run<false>(call, stream);
}

}  // namespace lockstep::exec::cuda
