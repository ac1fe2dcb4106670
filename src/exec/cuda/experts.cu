// Mixtures of experts, plainly: a warp routes a token, a warp multiplies a row of a chosen expert.
#include "exec/cuda/kernels.h"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/launch.cuh"
#include "exec/cuda/weights/eight.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = 128, kMixThreads = 256;

struct Best {
  float score;
  int index;  // -1: none
};

// The larger score; of equal ones the first.
__device__ Best better(Best a, Best b) {
  if (b.index < 0) return a;
  if (a.index < 0 || b.score > a.score || (b.score == a.score && b.index < a.index)) return b;
  return a;
}

// The best of `count` scores that are not taken yet, for the whole warp.
__device__ Best warp_best(const float* scores, const int* taken, int count) {
  Best best{0, -1};
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kWarp)
    if (taken[i] == 0) best = better(best, {scores[i], i});
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2)
    best = better(best,
                  {__shfl_xor_sync(~0u, best.score, step), __shfl_xor_sync(~0u, best.index, step)});
  return best;
}

// Scores in place of the router's numbers, by a warp.
__device__ void score(float* numbers, int count, bool sigmoid) {
  const int lane = static_cast<int>(threadIdx.x);
  if (sigmoid) {
    for (int i = lane; i < count; i += kWarp) numbers[i] = 1.0f / (1.0f + expf(-numbers[i]));
    return;
  }
  float largest = -INFINITY;
  for (int i = lane; i < count; i += kWarp) largest = fmaxf(largest, numbers[i]);
  largest = warp_max(largest);
  float sum = 0;
  for (int i = lane; i < count; i += kWarp) sum += numbers[i] = expf(numbers[i] - largest);
  sum = warp_sum(sum);
  for (int i = lane; i < count; i += kWarp) numbers[i] /= sum;
}

__device__ void choose(const RouteCall& call, int64_t t, float* scores, float* group_scores,
                       int* taken, int* groups_taken) {
  const int lane = static_cast<int>(threadIdx.x);
  const int experts = static_cast<int>(call.experts), groups = static_cast<int>(call.groups);
  if (call.bias != nullptr || groups > 1) score(scores, experts, call.sigmoid);
  for (int i = lane; i < experts; i += kWarp) {
    float number = scores[i] + (call.bias != nullptr ? call.bias[i] : 0.0f);
    // What is no number is less than all that are.
    scores[i] = number == number ? number : -INFINITY;
    taken[i] = 0;
  }
  __syncwarp();
  if (groups > 1) {
    const int size = experts / groups;
    for (int group = lane; group < groups; group += kWarp) {
      float first = -INFINITY, second = -INFINITY;
      for (int i = 0; i < size; ++i) {
        const float number = scores[group * size + i];
        second = fmaxf(second, fminf(first, number));
        first = fmaxf(first, number);
      }
      group_scores[group] = size > 1 && call.group_scores > 1 ? first + second : first;
      groups_taken[group] = 0;
    }
    __syncwarp();
    for (int64_t i = 0; i < call.groups_used; ++i) {
      const int group = warp_best(group_scores, groups_taken, groups).index;
      if (lane == 0) groups_taken[group] = 1;
      __syncwarp();
    }
    for (int i = lane; i < experts; i += kWarp) taken[i] = 1 - groups_taken[i / size];
    __syncwarp();
  }
  for (int64_t slot = 0; slot < call.used; ++slot) {
    const int expert = warp_best(scores, taken, experts).index;
    if (lane == 0) {
      taken[expert] = 1;
      call.choice[t * call.used + slot] = static_cast<float>(expert);
    }
    __syncwarp();
  }
}

__device__ void weigh(const RouteCall& call, int64_t t, float* scores) {
  score(scores, static_cast<int>(call.experts), call.sigmoid);
  __syncwarp();
  const float* choice = call.choice + t * call.used;
  float sum = 0;
  for (int64_t slot = threadIdx.x; slot < call.used; slot += kWarp)
    sum += scores[static_cast<int>(choice[slot])];
  sum = warp_sum(sum);
  for (int64_t slot = threadIdx.x; slot < call.used; slot += kWarp) {
    const float own = scores[static_cast<int>(choice[slot])];
    call.weights[t * call.used + slot] = (call.normalize ? own / sum : own) * call.scale;
  }
}

__global__ void __launch_bounds__(kWarp) route_kernel(const __grid_constant__ RouteCall call) {
  extern __shared__ float scores[];  // [experts], then groups, then what is taken of both
  let_next_start();
  wait_for_inputs();
  const int64_t t = call.first_row + blockIdx.x;
  for (int64_t i = threadIdx.x; i < call.experts; i += kWarp)
    scores[i] = call.router[t * call.experts + i];
  __syncwarp();
  if (call.weights != nullptr) return weigh(call, t, scores);
  float* groups = scores + call.experts;
  int* taken = reinterpret_cast<int*>(groups + call.groups);
  choose(call, t, scores, groups, taken, taken + call.experts);
}

// A lane takes eight columns at a time; each sum has an order of its own that nothing changes.
template <class Source>
__global__ void __launch_bounds__(kThreads)
    experts_kernel(const __grid_constant__ ExpertsCall call) {
  let_next_start();
  wait_for_inputs();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t row = int64_t{blockIdx.y} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const int64_t t = call.first_row + blockIdx.x / call.used, slot = blockIdx.x % call.used;
  if (row >= call.rows) return;
  const auto expert = static_cast<int64_t>(call.choice[t * call.used + slot]);
  const float* x = call.x + t * call.x_stride + slot * call.slot_stride;
  const int64_t columns = call.weight.columns;
  float sum = 0;
  for (int64_t first = 8 * lane; first < columns; first += 8 * kWarp) {
    float numbers[8] = {};
    Source::load(call.weight, expert * call.rows + row, first / kUnit,
                 static_cast<int>(first % kUnit / 8), numbers);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (first + i < columns) sum = fmaf(numbers[i], x[first + i], sum);
  }
  sum = warp_sum(sum);
  if (lane > 0) return;
  if (call.bias != nullptr) sum += call.bias[expert * call.rows + row];
  call.out[(t * call.used + slot) * call.rows + row] = sum;
}

__global__ void __launch_bounds__(kMixThreads) mix_kernel(const __grid_constant__ MixCall call) {
  let_next_start();
  wait_for_inputs();
  const int64_t t = call.first_row + blockIdx.x;
  const int64_t i = int64_t{blockIdx.y} * kMixThreads + threadIdx.x;
  if (i >= call.width) return;
  const float* weights = call.weights + t * call.used;
  const float* x = call.x + t * call.used * call.width + i;
  float sum = 0;
  if (call.gate)
    sum = *x / (1.0f + expf(-*weights));
  else
    for (int64_t slot = 0; slot < call.used; ++slot)
      sum = fmaf(weights[slot], x[slot * call.width], sum);
  call.out[t * call.width + i] = sum;
}

}  // namespace

void run_route(const RouteCall& call, cudaStream_t stream) {
  const auto bytes = static_cast<size_t>(2 * (call.experts + call.groups)) * sizeof(float);
  launch(route_kernel, dim3(static_cast<unsigned>(call.tokens - call.first_row)), kWarp, bytes,
         stream, call);
}

void run_experts(const ExpertsCall& call, cudaStream_t stream) {
  constexpr int64_t kRows = kThreads / kWarp;
  const dim3 grid(static_cast<unsigned>((call.tokens - call.first_row) * call.used),
                  static_cast<unsigned>((call.rows + kRows - 1) / kRows));
  const auto codes = [&]<quant::Format K>() {
    launch(experts_kernel<CodesSource<K>>, grid, kThreads, 0, stream, call);
  };
  if (visit_codes(call.weight.format, codes)) return;
  visit_stored(call.weight.format, [&]<class T>() {
    launch(experts_kernel<FloatsSource<T>>, grid, kThreads, 0, stream, call);
  });
}

void run_mix(const MixCall& call, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(call.tokens - call.first_row),
                  static_cast<unsigned>((call.width + kMixThreads - 1) / kMixThreads));
  launch(mix_kernel, grid, kMixThreads, 0, stream, call);
}

}  // namespace lockstep::exec::cuda
