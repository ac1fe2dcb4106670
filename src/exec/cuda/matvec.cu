// Products of weights with one row, as in generation: bound by how fast the weights are read. A
// warp takes a few rows at a time, so that what it loads of x serves all of them.
#include "exec/cuda/block.cuh"
#include "exec/cuda/kernels.h"
#include "exec/cuda/launch.cuh"
#include "exec/cuda/unit.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kWarps = 4;  // of a block

// Finds the product and its first row for this warp, of R rows each. False: there is none left.
template <int R>
__device__ bool find_rows(const MatvecCall& call, int& product, int64_t& row) {
  int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
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

template <int R>
__device__ void store(const MatvecCall::Product& product, int64_t row, const float (&sums)[R]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const float sum = warp_sum(sums[r]);
    if (lane == 0 && row + r < product.weight.rows)
      product.out[row + r] = product.bias != nullptr ? sum + product.bias[row + r] : sum;
  }
}

// Rows past the end are read as the last one, and not stored.
template <int R>
__device__ int64_t row_or_last(const WeightView& weight, int64_t row, int r) {
  return row + r < weight.rows ? row + r : weight.rows - 1;
}

// x is read with plain loads: it may be written while this kernel is already there.
template <quant::Format K, int R>
__global__ void __launch_bounds__(kWarps* kWarp)
    codes_kernel(const __grid_constant__ MatvecCall call) {
  let_next_start();
  int which = 0;
  int64_t row = 0;
  if (!find_rows<R>(call, which, row)) return;
  const MatvecCall::Product& product = call.products[which];
  const WeightView& weight = product.weight;
  const int64_t units = weight.columns / kUnit;
  Unit<kCodesOf<K>> now[R], next[R];
  const auto fetch = [&](Unit<kCodesOf<K>>(&into)[R], int64_t unit) {
    if (unit >= units) return;
#pragma unroll
    for (int r = 0; r < R; ++r) into[r].load(weight, row_or_last<R>(weight, row, r), unit);
  };
  int64_t unit = threadIdx.x % kWarp;
  fetch(now, unit);
  wait_for_inputs();
  float sums[R] = {};
  for (; unit < units; unit += kWarp) {
    fetch(next, unit + kWarp);
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
  store<R>(product, row, sums);
}

// 16 bytes of a row.
template <class T>
struct Vector {
  static constexpr int kNumbers = 16 / sizeof(T);
  uint4 words;

  __device__ void load(const uint8_t* row, int64_t index) {
    words = __ldcs(reinterpret_cast<const uint4*>(row) + index);
  }
  __device__ float dot(const float* x, float sum) const {
    const uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 4) {
        sum = fmaf(__uint_as_float(w[i]), x[i], sum);
      } else if constexpr (T::kFormat == quant::Format::kF16) {
        sum = fmaf(half_number(static_cast<uint16_t>(w[i])), x[2 * i], sum);
        sum = fmaf(half_number(static_cast<uint16_t>(w[i] >> 16)), x[2 * i + 1], sum);
      } else {
        sum = fmaf(__uint_as_float(w[i] << 16), x[2 * i], sum);
        sum = fmaf(__uint_as_float(w[i] & 0xffff0000u), x[2 * i + 1], sum);
      }
    }
    return sum;
  }
};

template <class T, int R>
__global__ void __launch_bounds__(kWarps* kWarp)
    floats_kernel(const __grid_constant__ MatvecCall call) {
  let_next_start();
  int which = 0;
  int64_t row = 0;
  if (!find_rows<R>(call, which, row)) return;
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
  int64_t index = threadIdx.x % kWarp;
#pragma unroll
  for (int k = 0; k < kAhead; ++k) fetch(ahead[k], index + k * kWarp);
  wait_for_inputs();
  float sums[R] = {};
  while (index < vectors) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k, index += kWarp) {
      if (index >= vectors) break;
      Vector<T> now[R];
#pragma unroll
      for (int r = 0; r < R; ++r) now[r] = ahead[k][r];
      fetch(ahead[k], index + kAhead * kWarp);
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
  store<R>(product, row, sums);
}

template <int R>
unsigned blocks_of(const MatvecCall& call) {
  int64_t pieces = 0;
  for (int i = 0; i < call.count; ++i) pieces += (call.products[i].weight.rows + R - 1) / R;
  return static_cast<unsigned>((pieces + kWarps - 1) / kWarps);
}

}  // namespace

void run_matvec(const MatvecCall& call, cudaStream_t stream) {
  int64_t rows = 0;
  for (int i = 0; i < call.count; ++i) rows += call.products[i].weight.rows;
  // Fewer rows a warp where there would be too few warps to keep the memory busy.
  constexpr int64_t kEnough = 132 * 12;
  const int most = rows >= 4 * kEnough ? 4 : rows >= 2 * kEnough ? 2 : 1;
  const quant::Format format = call.products[0].weight.format;
  const auto with_rows = [&](auto one, auto two, auto four) {
    if (most == 4)
      launch(four, dim3(blocks_of<4>(call)), kWarps * kWarp, 0, stream, call);
    else if (most == 2)
      launch(two, dim3(blocks_of<2>(call)), kWarps * kWarp, 0, stream, call);
    else
      launch(one, dim3(blocks_of<1>(call)), kWarps * kWarp, 0, stream, call);
  };
  const auto codes = [&]<quant::Format K>() {
    with_rows(codes_kernel<K, 1>, codes_kernel<K, 2>, codes_kernel<K, 4>);
  };
  if (visit_codes(format, codes)) return;
  visit_stored(format, [&]<class T>() {
    with_rows(floats_kernel<T, 1>, floats_kernel<T, 2>, floats_kernel<T, 4>);
  });
}

}  // namespace lockstep::exec::cuda
