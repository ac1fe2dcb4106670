// Products of weights with one row, as in generation: bound by how fast the weights are read. A
// warp takes a few rows at a time, so that what it loads of x serves all of them.
#include "exec/cuda/kernels.h"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/launch.cuh"
#include "exec/cuda/weights/unit.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kWarps = 4;  // of a block

// Finds the product and its first row: R rows for each S warps. False: there is none left.
template <int R, int S>
__device__ bool find_rows(const MatvecCall& call, int& product, int64_t& row) {
  int64_t index = int64_t{blockIdx.x} * (kWarps / S) + threadIdx.x / kWarp / S;
  for (product = 0; product < call.count; ++product) {
    const int64_t pieces = (call.products[product].weight.rows + R - 1) / R;
    if (index < pieces) {
      row = index * R;
      return true;
    }
    index -= pieces;
  }
  return false;
}

// S is 1, or all the warps of the block.
template <int R, int S>
__device__ void store(const MatvecCall::Product& product, int64_t row, const float (&sums)[R]) {
  __shared__ float shared[kWarps][R];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  float total[R];
#pragma unroll
  for (int r = 0; r < R; ++r) total[r] = warp_sum(sums[r]);
  if constexpr (S > 1) {
    if (lane == 0)
#pragma unroll
      for (int r = 0; r < R; ++r) shared[warp][r] = total[r];
    __syncthreads();
    if (warp > 0) return;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      total[r] = shared[0][r];
      for (int w = 1; w < kWarps; ++w) total[r] += shared[w][r];
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r)
    if (lane == 0 && row + r < product.weight.rows)
      product.out[row + r] = product.bias != nullptr ? total[r] + product.bias[row + r] : total[r];
}

// Rows past the end are read as the last one, and not stored.
template <int R>
__device__ int64_t row_or_last(const WeightView& weight, int64_t row, int r) {
  return row + r < weight.rows ? row + r : weight.rows - 1;
}

// x is read with plain loads: it may be written while this kernel is already there.
template <quant::Format K, int R, int S>
__global__ void __launch_bounds__(kWarps* kWarp)
    codes_kernel(const __grid_constant__ MatvecCall call) {
  let_next_start();
  int which = 0;
  int64_t row = 0;
  if (!find_rows<R, S>(call, which, row)) return;
  const MatvecCall::Product& product = call.products[which];
  const WeightView& weight = product.weight;
  const int64_t units = weight.columns / kUnit;
  Unit<kCodesOf<K>> now[R], next[R];
  const auto fetch = [&](Unit<kCodesOf<K>>(&into)[R], int64_t unit) {
    if (unit >= units) return;
#pragma unroll
    for (int r = 0; r < R; ++r) into[r].load(weight, row_or_last<R>(weight, row, r), unit);
  };
  constexpr int kStride = S * kWarp;
  int64_t unit = threadIdx.x % kStride;
  fetch(now, unit);
  wait_for_inputs();
  float sums[R] = {};
  for (; unit < units; unit += kStride) {
    fetch(next, unit + kStride);
    int32_t high[8], low[8];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int4 h = reinterpret_cast<const int4*>(call.codes.high)[unit * 2 + i];
      const int4 l = reinterpret_cast<const int4*>(call.codes.low)[unit * 2 + i];
      high[4 * i] = h.x;
      high[4 * i + 1] = h.y;
      high[4 * i + 2] = h.z;
      high[4 * i + 3] = h.w;
      low[4 * i] = l.x;
      low[4 * i + 1] = l.y;
      low[4 * i + 2] = l.z;
      low[4 * i + 3] = l.w;
    }
    const float x_scale = call.codes.scales[unit];
    const int2 x_sums = reinterpret_cast<const int2*>(call.codes.sums)[unit];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      sums[r] = now[r].dot(high, low, x_scale, x_sums, sums[r]);
      now[r] = next[r];
    }
  }
  store<R, S>(product, row, sums);
}

template <class T, int R, int S>
__global__ void __launch_bounds__(kWarps* kWarp)
    floats_kernel(const __grid_constant__ MatvecCall call) {
  let_next_start();
  int which = 0;
  int64_t row = 0;
  if (!find_rows<R, S>(call, which, row)) return;
  const MatvecCall::Product& product = call.products[which];
  const WeightView& weight = product.weight;
  constexpr int kNumbers = Vector<T>::kNumbers;
  const int64_t vectors = weight.row_stride / kNumbers;
  constexpr int kAhead = 2;  // vectors of each row that are under way
  Vector<T> ahead[kAhead][R];
  const auto fetch = [&](Vector<T>(&into)[R], int64_t index) {
    if (index >= vectors) return;
#pragma unroll
    for (int r = 0; r < R; ++r)
      into[r].load(weight.codes + row_or_last<R>(weight, row, r) * weight.row_stride *
                                      static_cast<int64_t>(sizeof(T)),
                   index);
  };
  constexpr int kStride = S * kWarp;
  int64_t index = threadIdx.x % kStride;
#pragma unroll
  for (int k = 0; k < kAhead; ++k) fetch(ahead[k], index + k * kStride);
  wait_for_inputs();
  float sums[R] = {};
  while (index < vectors) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k, index += kStride) {
      if (index >= vectors) break;
      Vector<T> now[R];
#pragma unroll
      for (int r = 0; r < R; ++r) now[r] = ahead[k][r];
      fetch(ahead[k], index + kAhead * kStride);
      float x[kNumbers];
#pragma unroll
      for (int i = 0; i < kNumbers; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(call.x + index * kNumbers + i);
        x[i] = four.x;
        x[i + 1] = four.y;
        x[i + 2] = four.z;
        x[i + 3] = four.w;
      }
#pragma unroll
      for (int r = 0; r < R; ++r) sums[r] = now[r].dot(x, sums[r]);
    }
  }
  store<R, S>(product, row, sums);
}

template <int R, int S>
dim3 blocks_of(const MatvecCall& call) {
  int64_t pieces = 0;
  for (int i = 0; i < call.count; ++i) pieces += (call.products[i].weight.rows + R - 1) / R;
  return dim3(static_cast<unsigned>((pieces + kWarps / S - 1) / (kWarps / S)));
}

// How many rows a warp takes, and how many warps share them: several rows where there are enough of
// them to keep the memory busy; where they are few and long, all warps of a block share one or two.
template <template <int, int> class Kernel>
void launch_for(const MatvecCall& call, int64_t row_vectors, cudaStream_t stream) {
  int64_t rows = 0;
  for (int i = 0; i < call.count; ++i) rows += call.products[i].weight.rows;
  const auto with = [&]<int R, int S>() {
    launch(Kernel<R, S>::function(), blocks_of<R, S>(call), kWarps * kWarp, 0, stream, call);
  };
  constexpr int64_t kEnoughWarps = 132 * 12;
  const bool shared = row_vectors > 2 * kWarp;
  if (rows >= 4 * kEnoughWarps)
    with.template operator()<4, 1>();
  else if (rows >= 2 * kEnoughWarps)
    with.template operator()<2, 1>();
  else if (shared && rows * kWarps >= 2 * kEnoughWarps)
    with.template operator()<2, kWarps>();
  else if (shared)
    with.template operator()<1, kWarps>();
  else
    with.template operator()<1, 1>();
}

template <quant::Format K>
struct OfCodes {
  template <int R, int S>
  struct Kernel {
    static auto function() { return codes_kernel<K, R, S>; }
  };
};
template <class T>
struct OfFloats {
  template <int R, int S>
  struct Kernel {
    static auto function() { return floats_kernel<T, R, S>; }
  };
};

}  // namespace

void run_matvec(const MatvecCall& call, cudaStream_t stream) {
  const WeightView& weight = call.products[0].weight;
  const auto codes = [&]<quant::Format K>() {
    launch_for<OfCodes<K>::template Kernel>(call, weight.columns / kUnit, stream);
  };
  if (visit_codes(weight.format, codes)) return;
  visit_stored(weight.format, [&]<class T>() {
    launch_for<OfFloats<T>::template Kernel>(call, weight.row_stride / Vector<T>::kNumbers, stream);
  });
}

}  // namespace lockstep::exec::cuda
