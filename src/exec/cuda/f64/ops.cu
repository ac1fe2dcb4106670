// Ops in double precision, for simplicity rather than speed: products with weights are nearly all
// of the work. This file is compiled without contraction, as exec/reference/ is.
#include "exec/cuda/f64/op_calls.h"
#include "exec/cuda/f64/sums.cuh"

namespace lockstep::exec::cuda {
namespace {

using f64::kBlock;
using f64::kLanes;

constexpr int kOfABlock = 256;
constexpr int kWarps = kOfABlock / 32;

int64_t blocks_for(int64_t count) {
  return (count + kOfABlock - 1) / kOfABlock;
}

// One number for each thread of the grid.
template <class Body>
__global__ void each_kernel(int64_t count, Body body) {
  const int64_t i = int64_t{blockIdx.x} * kOfABlock + threadIdx.x;
  if (i < count) body(i);
}
template <class Body>
void for_each(int64_t count, cudaStream_t stream, const Body& body) {
  each_kernel<<<static_cast<unsigned>(blocks_for(count)), kOfABlock, 0, stream>>>(count, body);
}

// The sum of what all threads of the block have, for all of them, always in the same order.
__device__ double block_sum(double sum, double lost) {
  __shared__ double sums[kWarps], rests[kWarps];
  for (int step = 16; step > 0; step /= 2) {
    const double other = __shfl_xor_sync(~0u, sum, step);
    const double other_lost = __shfl_xor_sync(~0u, lost, step);
    add_exactly(other, sum, lost);
    lost += other_lost;
  }
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = sum;
    rests[threadIdx.x / 32] = lost;
  }
  __syncthreads();
  sum = lost = 0;
  for (int i = 0; i < kWarps; ++i) {
    add_exactly(sums[i], sum, lost);
    lost += rests[i];
  }
  __syncthreads();
  return with_lost(sum, lost);
}

template <class Term>
__device__ double sum_over(int64_t count, const Term& term) {
  double sum = 0;
  double lost = 0;
  for (int64_t i = threadIdx.x; i < count; i += kOfABlock) add_exactly(term(i), sum, lost);
  return block_sum(sum, lost);
}

__device__ double block_max(double value) {
  __shared__ double largest[kWarps];
  for (int step = 16; step > 0; step /= 2) value = fmax(value, __shfl_xor_sync(~0u, value, step));
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = value;
  __syncthreads();
  for (const double other : largest) value = fmax(value, other);
  __syncthreads();
  return value;
}

// A block has one group.
__global__ void norm_kernel(const __grid_constant__ NormCall64 call) {
  const double* x = call.x + int64_t{blockIdx.x} * call.group;
  const float* weight = call.weight + int64_t{blockIdx.x} % call.weights * call.group;
  double* out = call.out + int64_t{blockIdx.x} * call.group;
  const auto count = static_cast<double>(call.group);
  // The mean in two parts: beside a large one, what its rounding loses is not small.
  double mean = 0;
  double rest = 0;
  if (call.layer) {
    mean = sum_over(call.group, [&](int64_t i) { return x[i]; }) / count;
    rest = sum_over(call.group, [&](int64_t i) { return x[i] - mean; }) / count;
  }
  const double squares = sum_over(call.group, [&](int64_t i) {
    const double difference = (x[i] - mean) - rest;
    return difference * difference;
  });
  const double factor = 1 / sqrt(squares / count + call.epsilon);
  for (int64_t i = threadIdx.x; i < call.group; i += kOfABlock) {
    const double bias = call.bias != nullptr ? static_cast<double>(call.bias[i]) : 0;
    out[i] = ((x[i] - mean) - rest) * factor * static_cast<double>(weight[i]) + bias;
  }
}

// A block has one head of one row: eight threads have one position.
__global__ void attention_kernel(const __grid_constant__ AttentionCall64 call) {
  const int64_t head = blockIdx.x;
  const int64_t t = blockIdx.y;
  const int64_t kv_head = head / (call.heads / call.kv_heads);
  const int64_t position = call.first_position + t;
  const int64_t first = call.window > 0 ? max(int64_t{0}, position - call.window + 1) : 0;
  const double* q = call.q + (t * call.heads + head) * call.head_size;
  const int64_t row = (head * call.rows + t) * call.positions;
  double* scores = call.scores + row;
  double* probs = call.probs + row;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  constexpr int kAtOnce = kOfABlock / kLanes;
  for (int64_t begin = 0; begin < call.positions; begin += kAtOnce) {
    const int64_t p = begin + threadIdx.x / kLanes;
    const bool seen = p >= first && p <= position;
    const double* k = call.k + (p * call.kv_heads + kv_head) * call.head_size;
    double sum = 0;
    double lost = 0;
    for (int64_t from = 0; seen && from < call.head_size; from += kBlock) {
      const int64_t end = min(from + kBlock, call.head_size);
      double block = 0;
      for (int64_t i = from + lane; i < end; i += kLanes) block += q[i] * k[i];
      add_exactly(block, sum, lost);
    }
    double score = call.scale * with_lost(across_lanes(sum), across_lanes(lost));
    if (call.soft_cap > 0) score = call.soft_cap * tanh(score / call.soft_cap);
    if (lane == 0 && p < call.positions) scores[p] = seen ? score : -INFINITY;
  }
  __syncthreads();
  const double sink = call.sinks != nullptr ? static_cast<double>(call.sinks[head]) : -INFINITY;
  double largest = sink;
  for (int64_t p = threadIdx.x; p < call.positions; p += kOfABlock)
    largest = fmax(largest, scores[p]);
  largest = block_max(largest);
  double total =
      sum_over(call.positions, [&](int64_t p) { return probs[p] = exp(scores[p] - largest); });
  if (call.sinks != nullptr) total += exp(sink - largest);
  for (int64_t p = threadIdx.x; p < call.positions; p += kOfABlock) probs[p] /= total;
  __syncthreads();
  constexpr int64_t kTogether = 8;  // positions that are added up before they join the sum
  for (int64_t d = threadIdx.x; d < call.value_size; d += kOfABlock) {
    double sum = 0;
    double lost = 0;
    for (int64_t begin = first / kTogether * kTogether; begin <= position; begin += kTogether) {
      double block = 0;
      bool seen = false;
      for (int64_t p = begin; p < min(begin + kTogether, call.positions); ++p) {
        if (probs[p] == 0) continue;  // out of sight, whatever v holds there
        block += probs[p] * call.v[(p * call.kv_heads + kv_head) * call.value_size + d];
        seen = true;
      }
      if (seen) add_exactly(block, sum, lost);
    }
    call.out[(t * call.heads + head) * call.value_size + d] = with_lost(sum, lost);
  }
}

}  // namespace

void run_widen(const float* in, int64_t stride, int64_t rows, int64_t columns, double* out,
               cudaStream_t stream) {
  for_each(rows * columns, stream, [=] __device__(int64_t i) {
    out[i] = static_cast<double>(in[i / columns * stride + i % columns]);
  });
}

void run_norm(const NormCall64& call, cudaStream_t stream) {
  norm_kernel<<<static_cast<unsigned>(call.groups), kOfABlock, 0, stream>>>(call);
}

void run_rope(const RopeCall64& c, cudaStream_t stream) {
  for_each(c.rows * c.columns, stream, [c] __device__(int64_t i) {
    const int64_t t = i / c.columns;
    const int64_t place = i % c.columns % c.head_size;
    if (place >= 2 * c.pairs) {
      c.out[i] = c.x[i];
      return;
    }
    const int64_t pair = c.adjacent ? place / 2 : place % c.pairs;
    const bool second = c.adjacent ? place % 2 == 1 : place >= c.pairs;
    const int64_t apart = c.adjacent ? 1 : c.pairs;
    const double x = c.x[second ? i - apart : i];
    const double y = c.x[second ? i : i + apart];
    const double cosine = c.cosines[t * c.pairs + pair];
    const double sine = c.sines[t * c.pairs + pair];
    c.out[i] = second ? x * sine + y * cosine : x * cosine - y * sine;
  });
}

void run_attention(const AttentionCall64& call, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(call.heads), static_cast<unsigned>(call.rows));
  attention_kernel<<<grid, kOfABlock, 0, stream>>>(call);
}

void run_activate(op::Activate::Kind kind, const double* xs, const double* factors, int64_t count,
                  double* out, cudaStream_t stream) {
  for_each(count, stream, [=] __device__(int64_t i) {
    constexpr double kRootOfTwoOverPi = 0x1.9884533d43651p-1;
    constexpr double kRootOfTwo = 0x1.6a09e667f3bcdp+0;
    const double x = xs[i];
    double y = 0;
    switch (kind) {
      case op::Activate::Kind::kSilu:
        y = x / (1 + exp(-x));
        break;
      case op::Activate::Kind::kGeluTanh:
        y = 0.5 * x * (1 + tanh(kRootOfTwoOverPi * (x + 0.044715 * x * x * x)));
        break;
      case op::Activate::Kind::kGeluErf:
        y = 0.5 * x * (1 + erf(x / kRootOfTwo));
        break;
      case op::Activate::Kind::kClampedSwish: {
        // Not fmin, which drops a NaN.
        constexpr double kLimit = op::Activate::kLimit;
        const double bounded = x > kLimit ? kLimit : x;
        y = bounded / (1 + exp(-op::Activate::kSteepness * bounded));
        if (factors == nullptr) break;
        const double other = factors[i];
        out[i] = y * (1 + (other > kLimit ? kLimit : other < -kLimit ? -kLimit : other));
        return;
      }
    }
    out[i] = factors != nullptr ? y * factors[i] : y;
  });
}

void run_add(const double* x, const double* y, int64_t count, double* out, cudaStream_t stream) {
  for_each(count, stream, [=] __device__(int64_t i) { out[i] = x[i] + y[i]; });
}

void run_soft_cap(const double* x, double cap, int64_t count, double* out, cudaStream_t stream) {
  for_each(count, stream, [=] __device__(int64_t i) { out[i] = cap * tanh(x[i] / cap); });
}

void run_scale(const double* x, double factor, int64_t count, double* out, cudaStream_t stream) {
  for_each(count, stream, [=] __device__(int64_t i) { out[i] = factor * x[i]; });
}

}  // namespace lockstep::exec::cuda
