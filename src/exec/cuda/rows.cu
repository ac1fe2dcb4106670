// The ops that compute each token's row on its own: one block takes a token through all of a
// stage's ops, so that a stage is one launch. Its code runs once a launch, from a cold cache: what
// is seldom used (embed.cu) stays out.
#include <algorithm>
#include <numeric>

#include <cuda_fp16.h>

#include "exec/cuda/kernels.h"
#include "exec/cuda/prompts/row_halves.cuh"
#include "exec/cuda/shared/activation.cuh"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/launch.cuh"
#include "exec/cuda/shared/mma.cuh"
#include "exec/cuda/weights/planes.h"

namespace lockstep::exec::cuda {
namespace {

constexpr int kFewThreads = 128, kThreads = 512, kMostThreads = 1024;

// Columns that a block works on. (A row is short enough for 32 bits, which divide faster.)
struct Columns {
  int begin, end;
};
__device__ Columns part_of(int64_t width, int part, int parts) {
  const int count = static_cast<int>(width) / parts;
  return {part * count, (part + 1) * count};
}

template <class Read, class Write>
__device__ void for_each(Columns columns, Read&& read, Write&& write) {
  for_several(columns.begin + static_cast<int>(threadIdx.x), columns.end,
              static_cast<int>(blockDim.x), read, write);
}

// One group of numbers, by `threads` threads of which this is number `thread`; `sum` adds up over
// them.
template <class Sum>
__device__ void normalize_group(const RowTask& task, const float* x, const float* weight,
                                float* out, int thread, int threads, Sum&& sum) {
  const bool layer = task.kind == RowTask::Kind::kLayerNorm;
  const int size = static_cast<int>(task.group);
  const auto count = static_cast<float>(size);
  float mean = 0;
  if (layer) {
    float total = 0;
#pragma unroll 4
    for (int i = thread; i < size; i += threads) total += x[i];
    mean = sum(total) / count;
  }
  float squares = 0;
#pragma unroll 4
  for (int i = thread; i < size; i += threads) {
    const float d = x[i] - mean;
    squares = fmaf(d, d, squares);
  }
  const float factor = 1.0f / sqrtf(sum(squares) / count + task.factor);
  for_several(
      thread, size, threads,
      [&](int i) {
        return make_float3(x[i], weight[i], task.bias != nullptr ? task.bias[i] : 0.0f);
      },
      [&](int i, float3 at) {
        const float y = (at.x - mean) * factor * at.y;
        out[i] = task.bias != nullptr ? y + at.z : y;
      });
}

// A whole row by the block, or heads by a warp each.
__device__ void normalize(const RowTask& task, const float* x, float* out, Columns columns,
                          float* shared) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int group = static_cast<int>(task.group);
  if (group == task.width) {
    normalize_group(task, x, task.weight, out, thread, threads,
                    [&](float value) { return block_sum(value, shared); });
    return;
  }
  for (int first = columns.begin + thread / kWarp * group; first < columns.end;
       first += threads / kWarp * group)
    normalize_group(task, x + first, task.weight + (task.own_weights ? first : 0), out + first,
                    thread % kWarp, kWarp, warp_sum);
}

__device__ void rotate(const RowTask& task, int64_t t, const float* x, float* out,
                       Columns columns) {
  const float* cosines = task.cosines + t * task.pairs;
  const float* sines = task.sines + t * task.pairs;
  const int head_size = static_cast<int>(task.head_size), pairs = static_cast<int>(task.pairs);
  const int rest = head_size - 2 * pairs, distance = task.adjacent ? 1 : pairs;
  const int first_head = columns.begin / head_size, end_head = columns.end / head_size;
  const auto place = [&](int i) {
    const int head = i / pairs, pair = i - head * pairs;
    return head * head_size + (task.adjacent ? 2 * pair : pair);
  };
  for_each(
      {first_head * pairs, end_head * pairs},
      [&](int i) {
        return make_float4(x[place(i)], x[place(i) + distance], cosines[i % pairs],
                           sines[i % pairs]);
      },
      [&](int i, float4 at) {
        out[place(i)] = at.x * at.z - at.y * at.w;
        out[place(i) + distance] = at.x * at.w + at.y * at.z;
      });
  const auto unmoved = [&](int i) { return i / rest * head_size + 2 * pairs + i % rest; };
  for_each(
      {first_head * rest, end_head * rest}, [&](int i) { return x[unmoved(i)]; },
      [&](int i, float value) { out[unmoved(i)] = value; });
}

// 16 bits a number, scaled by the largest of each unit. A warp takes a unit.
__device__ void prepare(const RowTask& task, const float* x, Columns columns) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (task.out != nullptr) {
    const auto keep = [&](int i, float value) { task.out[i] = value; };
    for_each(
        columns, [&](int i) { return x[i]; }, keep);
    if (columns.end == task.a_width)
      for_each(
          {columns.end, static_cast<int>(task.width)}, [](int) { return 0.0f; }, keep);
  }
  if (task.codes.high == nullptr) return;
  for (int unit = columns.begin / kUnit + static_cast<int>(threadIdx.x) / kWarp;
       unit < columns.end / kUnit; unit += static_cast<int>(blockDim.x) / kWarp) {
    const float value = x[unit * kUnit + lane];
    const float largest = warp_max(fabsf(value));
    // So that the high byte, after the low one's rounding, stays within a signed byte.
    constexpr float kMost = 32512;
    const float scale = largest / kMost;
    const float inverse = largest > 0 ? kMost / largest : 0;
    // All but zero, infinite or not a number: there are no codes; the scale tells.
    const bool finite = largest <= 3.0e38f && !__any_sync(~0u, value != value);
    const bool tame = finite && inverse <= 3.0e38f;
    const int code = tame ? __float2int_rn(value * inverse) : 0;
    const int high = (code + 128) >> 8;
    task.codes.high[unit * kUnit + lane] = static_cast<int8_t>(high);
    task.codes.low[unit * kUnit + lane] = static_cast<int8_t>(code - 256 * high);
    int sum = code;
#pragma unroll
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane % 16 == 0) task.codes.sums[unit * 2 + lane / 16] = sum;
    if (lane == 0)
      task.codes.scales[unit] = !finite ? __int_as_float(0x7fc00000) : tame ? scale : 0.0f;
  }
}

// A row of a prompt. A maximum needs no order. Most rows are smaller than one before, and need not
// say so.
__device__ void halve_row(const RowTask& task, const float* x, int64_t row, float* shared) {
  const float4* fours = reinterpret_cast<const float4*>(x);
  float most = 0;
  for_each(
      {0, static_cast<int>(task.a_width / 4)}, [&](int i) { return fours[i]; },
      [&](int i, float4 f) {
        most = fmaxf(most, largest_of(f));
        put_halves(f, kUsualScale, task.halves, task.a_width, row, 4 * i);
      });
  const uint32_t bits = __float_as_uint(block_max(most, shared));
  uint32_t* largest = task.halves.largest;
  if (threadIdx.x == 0 && bits > *static_cast<volatile uint32_t*>(largest))
    atomicMax(largest, bits);
}

// Whole heads, one by a warp at a time where they are split.
__device__ void append_row(const float* x, Columns columns, int64_t size_of, int64_t position,
                           int64_t positions, const CachePlanes& out) {
  const int size = static_cast<int>(size_of);
  auto* high = reinterpret_cast<__half*>(out.high);
  if (out.low == nullptr) {
    for_each(
        columns, [&](int i) { return x[i]; },
        [&](int i, float value) {
          const int head = i / size;
          high[(head * positions + position) * size + i - head * size] = __float2half_rn(value);
        });
    return;
  }
  auto* low = reinterpret_cast<__half*>(out.low);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int head = columns.begin / size + static_cast<int>(threadIdx.x) / kWarp;
       head < columns.end / size; head += static_cast<int>(blockDim.x) / kWarp) {
    float most = 0;
    for (int i = lane; i < size; i += kWarp) most = fmaxf(most, fabsf(x[head * size + i]));
    most = warp_max(most);
    const int shift = shift_into_range(most);
    const float scale = power_of_two(shift);
    const int64_t row = head * positions + position;
    for (int i = lane; i < size; i += kWarp) {
      const float number = x[head * size + i] * scale;
      const __half upper = __float2half_rn(number);
      high[row * size + i] = upper;
      // Nothing is left of infinity.
      low[row * size + i] = __float2half_rn(isinf(most) ? 0.0f : number - __half2float(upper));
    }
    if (lane == 0) out.shifts[row] = static_cast<int8_t>(shift);
  }
}

__device__ void append(const RowTask& task, const float* keys, const float* values,
                       int64_t position, int part, int parts) {
  const Cache& cache = task.cache;
  append_row(keys, part_of(task.a_width, part, parts), task.head_size, position, cache.positions,
             cache.keys);
  append_row(values, part_of(task.b_width, part, parts), task.value_size, position, cache.positions,
             cache.values);
}

// The number of column `i` of HeadParts.
__device__ float part_of_head(const RowTask& task, const float* a, const float* b, int i) {
  const int size = static_cast<int>(task.head_size), width = static_cast<int>(task.value_size);
  const int heads = static_cast<int>(task.width) / size, head = i / size, at = i - head * size;
  if (at < width) return a[head * (static_cast<int>(task.a_width) / heads) + task.group + at];
  const int rest = size - width;
  return b[(task.b_width == rest ? 0 : head * rest) + at - width];
}

__global__ void __launch_bounds__(kMostThreads) rows_kernel(const __grid_constant__ RowsCall call) {
  using Kind = RowTask::Kind;
  __shared__ float shared[kMostThreads / kWarp];
  let_next_start();
  wait_for_inputs();
  const int64_t t = blockIdx.x;
  const int part = static_cast<int>(blockIdx.y);
  const int64_t position = call.state->first_position + t;
  for (int n = 0; n < call.count; ++n) {
    const RowTask& task = call.tasks[n];
    if (t >= task.first_row) {
      const float* a = task.a + t * task.a_width;
      const float* b = task.b + t * task.b_width;
      float* out = task.out + t * task.width;
      const auto keep = [&](int i, float value) { out[i] = value; };
      const Columns columns = part_of(task.width, part, call.parts);
      switch (task.kind) {
        case Kind::kRmsNorm:
        case Kind::kLayerNorm:
          normalize(task, a, out, columns, shared);
          break;
        case Kind::kSlice:
          for_each(
              columns, [&](int i) { return a[task.group + i]; }, keep);
          break;
        case Kind::kHeadParts:
          for_each(
              columns, [&](int i) { return part_of_head(task, a, b, i); }, keep);
          break;
        case Kind::kRope:
          rotate(task, t, a, out, columns);
          break;
        case Kind::kSilu:
        case Kind::kGeluTanh:
        case Kind::kGeluErf:
        case Kind::kClampedSwish:
          for_each(
              columns,
              [&](int i) {
                const float y = task.b != nullptr ? factor_of_gate(task.kind, b[i]) : 1.0f;
                return make_float2(a[i], y);
              },
              [&](int i, float2 at) { out[i] = activate(task.kind, at.x) * at.y; });
          break;
        case Kind::kAdd:
          for_each(
              columns, [&](int i) { return make_float2(a[i], b[i]); },
              [&](int i, float2 at) { out[i] = at.x + at.y; });
          break;
        case Kind::kScale:
          for_each(
              columns, [&](int i) { return task.factor * a[i]; }, keep);
          break;
        case Kind::kSoftCap:
          for_each(
              columns, [&](int i) { return task.factor * tanhf(a[i] / task.factor); }, keep);
          break;
        case Kind::kPrepare:
          if (task.halves.to != nullptr)
            halve_row(task, a, t - task.first_row, shared);
          else
            prepare(task, a, part_of(task.a_width, part, call.parts));
          break;
        case Kind::kAppend:
          append(task, a, b, position, part, call.parts);
          break;
      }
    }
    __syncthreads();
  }
}

// Into how many parts a task's columns can be cut so that no part needs another's results.
int64_t pieces_of(const RowTask& task) {
  using Kind = RowTask::Kind;
  switch (task.kind) {
    case Kind::kRmsNorm:
    case Kind::kLayerNorm:
      return task.width / task.group;
    case Kind::kHeadParts:
    case Kind::kRope:
      return task.width / task.head_size;
    case Kind::kAppend:
      return std::gcd(task.a_width / task.head_size, task.b_width / task.value_size);
    case Kind::kPrepare:
      return task.a_width % kUnit == 0 ? task.a_width / kUnit : 1;
    default:
      return task.width;
  }
}

}  // namespace

void run_rows(const RowsCall& call, cudaStream_t stream) {
  RowsCall shared = call;
  // In a prompt the tokens are blocks enough.
  if (call.tokens == 1) {
    int64_t pieces = 0;
    for (int i = 0; i < call.count; ++i) {
      const RowTask& task = call.tasks[i];
      pieces = std::gcd(pieces, pieces_of(task));
      // A slice cuts across the parts of what it is taken from.
      const bool cuts =
          task.kind == RowTask::Kind::kSlice || task.kind == RowTask::Kind::kHeadParts;
      for (int k = 0; k < i; ++k)
        if (cuts && (call.tasks[k].out == task.a || call.tasks[k].out == task.b)) pieces = 1;
    }
    constexpr int64_t kMostParts = 32;
    for (int64_t parts = std::min(pieces, kMostParts); parts > 1; --parts)
      if (pieces % parts == 0) {
        shared.parts = static_cast<int>(parts);
        break;
      }
  }
  int threads = kMostThreads;
  if (call.tokens > 1 || shared.parts > 1) {
    // Many tokens want small blocks, of which more are at home at once.
    int64_t widest = 0;
    for (int i = 0; i < call.count; ++i) widest = std::max(widest, call.tasks[i].width);
    threads = kThreads;
    while (call.tokens > 1 && threads > kFewThreads && widest <= 4 * threads) threads /= 2;
  }
  launch(rows_kernel, dim3(static_cast<unsigned>(call.tokens), static_cast<unsigned>(shared.parts)),
         threads, 0, stream, shared);
}
}  // namespace lockstep::exec::cuda
