// Numbers as one or two halves, for the tensor cores: two together keep 22 bits.
#include <cuda_fp16.h>

#include "exec/cuda/kernels.h"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/launch.cuh"
#include "exec/cuda/shared/mma.cuh"
#include "exec/cuda/weights/unit.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 132 * 16;

// The power of two that brings the largest magnitude just below 2^15, a half's limit with room.
__device__ float scale_for(uint32_t largest) {
  const int exponent = static_cast<int>(largest >> 23) - 127;  // of zero: far below
  if (exponent >= 128) return 1;                               // not finite: nothing to save
  const int shift = max(-126, min(127, 14 - exponent));
  return __uint_as_float(static_cast<uint32_t>(shift + 127) << 23);
}

// Magnitudes as bits are ordered like the numbers, so that the maximum needs no order.
__device__ void offer_largest(float value, uint32_t* largest) {
  value = warp_max(fabsf(value));
  if (threadIdx.x % kWarp == 0) atomicMax(largest, __float_as_uint(value));
}

__device__ void store(float value, float scale, const Halves& out, int64_t index) {
  const float scaled = value * scale;
  const __half high = __float2half_rn(scaled);
  static_cast<__half*>(out.high)[index] = high;
  if (out.low != nullptr)
    static_cast<__half*>(out.low)[index] = __float2half_rn(scaled - __half2float(high));
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
      body(group * 4, four.x);
      body(group * 4 + 1, four.y);
      body(group * 4 + 2, four.z);
      body(group * 4 + 3, four.w);
    }
  }
};

template <class T>
struct FloatsSource {
  WeightView weight;
  __device__ int64_t groups() const { return weight.rows * weight.columns; }
  template <class Body>
  __device__ void visit(int64_t group, Body&& body) const {
    const int64_t row = group / weight.columns;
    body(group,
         Stored<T>::number(weight.codes + row * weight.row_stride * static_cast<int64_t>(sizeof(T)),
                           group - row * weight.columns));
  }
};

template <class Source>
__global__ void largest_kernel(Source source, uint32_t* largest) {
  float most = 0;
  for (int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x; group < source.groups();
       group += int64_t{gridDim.x} * kThreads)
    source.visit(group, [&](int64_t, float value) { most = fmaxf(most, fabsf(value)); });
  offer_largest(most, largest);
}

template <class Source>
__global__ void halve_kernel(Source source, Halves out) {
  const float scale = scale_for(*out.largest);
  for (int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x; group < source.groups();
       group += int64_t{gridDim.x} * kThreads)
    source.visit(group, [&](int64_t index, float value) { store(value, scale, out, index); });
}

template <class Source>
void halve(const Source& source, int64_t groups, const Halves& out, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(min(kMostBlocks, (groups + kThreads - 1) / kThreads));
  cudaMemsetAsync(out.largest, 0, sizeof *out.largest, stream);
  largest_kernel<<<blocks, kThreads, 0, stream>>>(source, out.largest);
  halve_kernel<<<blocks, kThreads, 0, stream>>>(source, out);
}

__global__ void __launch_bounds__(kThreads)
    largest_of_rows_kernel(const __grid_constant__ HalveRowsCall call) {
  let_next_start();
  wait_for_inputs();
  const float4* x = reinterpret_cast<const float4*>(call.x);
  float most = 0;
#pragma unroll 4
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < call.count / 4;
       i += int64_t{gridDim.x} * kThreads) {
    const float4 f = x[i];
    most = fmaxf(most, fmaxf(fmaxf(fabsf(f.x), fabsf(f.y)), fmaxf(fabsf(f.z), fabsf(f.w))));
  }
  offer_largest(most, call.out.largest);
}

__global__ void __launch_bounds__(kThreads)
    halve_rows_kernel(const __grid_constant__ HalveRowsCall call) {
  let_next_start();
  wait_for_inputs();
  const float scale = scale_for(*call.out.largest);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *call.next_largest = 0;
    for (int i = 0; i < call.weights; ++i)
      call.factors[i] = 1 / scale * (1 / scale_for(*call.largest_weight[i]));
  }
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

void run_halve(const WeightView& weight, const Halves& out, cudaStream_t stream) {
  const int64_t numbers = weight.rows * weight.columns;
  const auto codes = [&]<quant::Format K>() {
    halve(CodesSource<K>{weight}, numbers / 4, out, stream);
  };
  if (visit_codes(weight.format, codes)) return;
  visit_stored(weight.format,
               [&]<class T>() { halve(FloatsSource<T>{weight}, numbers, out, stream); });
}

void run_halve_rows(const HalveRowsCall& call, bool finds_largest, cudaStream_t stream) {
  constexpr int64_t kOfBlock = 4 * 4 * kThreads;  // four times four numbers of a thread at once
  const dim3 blocks(
      static_cast<unsigned>(min(kMostBlocks, (call.count + kOfBlock - 1) / kOfBlock)));
  if (finds_largest) launch(largest_of_rows_kernel, blocks, kThreads, 0, stream, call);
  launch(halve_rows_kernel, blocks, kThreads, 0, stream, call);
}

}  // namespace lockstep::exec::cuda
