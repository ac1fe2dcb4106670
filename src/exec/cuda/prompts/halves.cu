// Numbers as one or two halves, for the tensor cores: two together keep 22 bits.
#include <cuda_fp16.h>

#include "exec/cuda/kernels.h"
#include "exec/cuda/prompts/row_halves.cuh"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/launch.cuh"
#include "exec/cuda/weights/unit.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 132 * 16;
constexpr int64_t kOfBlock = 4 * 4 * kThreads;  // four times four numbers of a thread at once

// Magnitudes as bits are ordered like the numbers, so that the maximum needs no order.
__device__ void offer_largest(float value, uint32_t* largest) {
  value = warp_max(fabsf(value));
  if (threadIdx.x % kWarp == 0) atomicMax(largest, __float_as_uint(value));
}

__device__ void store(float value, float scale, const WeightHalves& out, int64_t columns,
                      int64_t row, int64_t column) {
  const float scaled = value * scale;
  const __half high = __float2half_rn(scaled);
  __half* to = static_cast<__half*>(out.to) + row * out.parts * columns + column;
  to[0] = high;
  if (out.parts == 2) to[columns] = high;
  if (out.parts < 3) return;
  to[columns] = __float2half_rn(scaled - __half2float(high));
  to[2 * columns] = high;
}

template <quant::Format K>
struct CodesSource {
  WeightView weight;
  __device__ int64_t groups() const { return weight.rows * weight.columns / 4; }
  template <class Body>
  __device__ void visit(int64_t group, Body&& body) const {
    const int64_t row = group * 4 / weight.columns, column = group * 4 % weight.columns;
    Unit<kCodesOf<K>> unit;
    unit.load(weight, row, column / kUnit);
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // chosen in registers
      if (i != column % kUnit / 4) continue;
      const float4 four = unit.numbers(i);
      body(row, column, four.x);
      body(row, column + 1, four.y);
      body(row, column + 2, four.z);
      body(row, column + 3, four.w);
    }
  }
};

// The same by whole units, for who needs no order.
template <quant::Format K>
struct UnitsSource {
  WeightView weight;
  __device__ int64_t groups() const { return weight.rows * (weight.columns / kUnit); }
  template <class Body>
  __device__ void visit(int64_t group, Body&& body) const {
    const int64_t units = weight.columns / kUnit;
    Unit<kCodesOf<K>> unit;
    unit.load(weight, group / units, group % units);
#pragma unroll
    for (int i = 0; i < kUnit / 4; ++i) {
      const float4 four = unit.numbers(i);
      body(0, 0, four.x);
      body(0, 0, four.y);
      body(0, 0, four.z);
      body(0, 0, four.w);
    }
  }
};

template <class T>
struct FloatsSource {
  WeightView weight;
  __device__ int64_t groups() const { return weight.rows * weight.columns; }
  template <class Body>
  __device__ void visit(int64_t group, Body&& body) const {
    const int64_t row = group / weight.columns, column = group - row * weight.columns;
    body(row, column,
         Stored<T>::number(weight.codes + row * weight.row_stride * static_cast<int64_t>(sizeof(T)),
                           column));
  }
};

template <class Source>
__global__ void largest_kernel(Source source, uint32_t* largest) {
  float most = 0;
  for (int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x; group < source.groups();
       group += int64_t{gridDim.x} * kThreads)
    source.visit(group, [&](int64_t, int64_t, float value) { most = fmaxf(most, fabsf(value)); });
  offer_largest(most, largest);
}

template <class Source>
__global__ void halve_kernel(Source source, WeightHalves out) {
  const float scale = scale_for(*out.largest);
  for (int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x; group < source.groups();
       group += int64_t{gridDim.x} * kThreads)
    source.visit(group, [&](int64_t row, int64_t column, float value) {
      store(value, scale, out, source.weight.columns, row, column);
    });
}

unsigned blocks_for(int64_t groups) {
  return static_cast<unsigned>(min(kMostBlocks, (groups + kThreads - 1) / kThreads));
}

// What the products of rows that are times `scale` must be multiplied by. Of the next rows nothing
// is known yet.
template <class Call>
__device__ void put_factors(const Call& call, float scale) {
  if (blockIdx.x > 0 || threadIdx.x > 0) return;
  *call.next_largest = 0;
  for (int i = 0; i < call.weights; ++i)
    call.factors[i] = 1 / scale * (1 / scale_for(*call.largest_weight[i]));
}

__global__ void __launch_bounds__(kThreads)
    fit_rows_kernel(const __grid_constant__ FitRowsCall call) {
  let_next_start();
  wait_for_inputs();
  const float scale = scale_of_rows(*call.out.largest);
  put_factors(call, scale);
  if (scale == kUsualScale) return;
  const float4* x = reinterpret_cast<const float4*>(call.x);
  const int64_t fours = call.columns / 4;
  for_several(
      int64_t{blockIdx.x} * kThreads + threadIdx.x, call.rows * fours,
      int64_t{gridDim.x} * kThreads, [&](int64_t i) { return x[i]; },
      [&](int64_t i, float4 f) {
        put_halves(f, scale, call.out, call.columns, i / fours, i % fours * 4);
      });
}

__global__ void __launch_bounds__(kThreads)
    largest_of_rows_kernel(const __grid_constant__ HalveRowsCall call) {
  let_next_start();
  wait_for_inputs();
  const float4* x = reinterpret_cast<const float4*>(call.x);
  float most = 0;
#pragma unroll 4
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < call.count / 4;
       i += int64_t{gridDim.x} * kThreads)
    most = fmaxf(most, largest_of(x[i]));
  offer_largest(most, call.out.largest);
}

__global__ void __launch_bounds__(kThreads)
    halve_rows_kernel(const __grid_constant__ HalveRowsCall call) {
  let_next_start();
  wait_for_inputs();
  const float scale = scale_for(*call.out.largest);
  put_factors(call, scale);
  const float4* x = reinterpret_cast<const float4*>(call.x);
  for_several(
      int64_t{blockIdx.x} * kThreads + threadIdx.x, call.count / 4, int64_t{gridDim.x} * kThreads,
      [&](int64_t i) { return x[i]; },
      [&](int64_t i, float4 f) {
        uint2 high, low;
        split(f.x * scale, f.y * scale, high.x, low.x);
        split(f.z * scale, f.w * scale, high.y, low.y);
        static_cast<uint2*>(call.out.high)[i] = high;
        if (call.out.low != nullptr) static_cast<uint2*>(call.out.low)[i] = low;
      });
}

}  // namespace

void run_largest(const WeightView& weight, uint32_t* largest, cudaStream_t stream) {
  const int64_t numbers = weight.rows * weight.columns;
  const auto find = [&](const auto& source, int64_t groups) {
    largest_kernel<<<blocks_for(groups), kThreads, 0, stream>>>(source, largest);
  };
  const auto codes = [&]<quant::Format K>() { find(UnitsSource<K>{weight}, numbers / kUnit); };
  if (visit_codes(weight.format, codes)) return;
  visit_stored(weight.format, [&]<class T>() { find(FloatsSource<T>{weight}, numbers); });
}

void run_halve(const WeightView& weight, const WeightHalves& out, cudaStream_t stream) {
  const int64_t numbers = weight.rows * weight.columns;
  const auto halve = [&](const auto& source, int64_t groups) {
    halve_kernel<<<blocks_for(groups), kThreads, 0, stream>>>(source, out);
  };
  const auto codes = [&]<quant::Format K>() { halve(CodesSource<K>{weight}, numbers / 4); };
  if (visit_codes(weight.format, codes)) return;
  visit_stored(weight.format, [&]<class T>() { halve(FloatsSource<T>{weight}, numbers); });
}

void run_fit_rows(const FitRowsCall& call, cudaStream_t stream) {
  // Mostly there is nothing to do: few blocks start and end sooner.
  constexpr int64_t kFewBlocks = 132 * 4;
  const int64_t blocks = (call.rows * call.columns + kOfBlock - 1) / kOfBlock;
  launch(fit_rows_kernel, dim3(static_cast<unsigned>(min(kFewBlocks, blocks))), kThreads, 0, stream,
         call);
}

void run_halve_rows(const HalveRowsCall& call, cudaStream_t stream) {
  const dim3 blocks(
      static_cast<unsigned>(min(kMostBlocks, (call.count + kOfBlock - 1) / kOfBlock)));
  launch(largest_of_rows_kernel, blocks, kThreads, 0, stream, call);
  launch(halve_rows_kernel, blocks, kThreads, 0, stream, call);
}

}  // namespace lockstep::exec::cuda
