// Products of weights with many rows, as in prompts: tiles of weights and rows in shared memory,
// single precision throughout.
#include "exec/cuda/kernels.h"
#include "exec/cuda/shared/launch.cuh"
#include "exec/cuda/weights/eight.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kTileRows = 64, kTileTokens = 64, kDepth = kUnit;
constexpr int kThreads = 256;  // each computes 4 x 4

template <class Source>
__global__ void __launch_bounds__(kThreads) matmul_kernel(const __grid_constant__ MatmulCall call) {
  let_next_start();
  wait_for_inputs();
  // Padded so that neither writing by columns nor reading by rows meets one bank twice.
  __shared__ float w[kDepth][kTileRows + 4], x[kDepth][kTileTokens + 4];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first_row = int64_t{blockIdx.x} * kTileRows;
  const int64_t first_token = int64_t{blockIdx.y} * kTileTokens;
  const int64_t columns = call.weight.columns;
  const int64_t units = (columns + kUnit - 1) / kUnit;
  const int lane_row = thread / 4, part = thread % 4;  // what this thread loads
  const int64_t row = first_row + lane_row, token = first_token + lane_row;
  const int tr = thread % 16 * 4, tt = thread / 16 * 4;  // what it computes
  float sums[4][4] = {};
  for (int64_t unit = 0; unit < units; ++unit) {
    float numbers[8] = {};
    if (row < call.weight.rows) Source::load(call.weight, row, unit, part, numbers);
#pragma unroll
    for (int i = 0; i < 8; ++i) w[part * 8 + i][lane_row] = numbers[i];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t column = unit * kUnit + part * 8 + i;
      x[part * 8 + i][lane_row] =
          token < call.tokens && column < columns ? call.x[token * columns + column] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const float4 a = *reinterpret_cast<const float4*>(&w[k][tr]);
      const float4 b = *reinterpret_cast<const float4*>(&x[k][tt]);
      const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(bs[i], as[j], sums[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    const int64_t t = first_token + tt + i;
    if (t >= call.tokens) continue;
    for (int j = 0; j < 4; ++j) {
      const int64_t r = first_row + tr + j;
      if (r >= call.weight.rows) continue;
      const float bias = call.bias != nullptr ? call.bias[r] : 0.0f;
      call.out[t * call.weight.rows + r] = call.bias != nullptr ? sums[i][j] + bias : sums[i][j];
    }
  }
}

}  // namespace

void run_matmul(const MatmulCall& call, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((call.weight.rows + kTileRows - 1) / kTileRows),
                  static_cast<unsigned>((call.tokens + kTileTokens - 1) / kTileTokens));
  const auto codes = [&]<quant::Format K>() {
    launch(matmul_kernel<CodesSource<K>>, grid, kThreads, 0, stream, call);
  };
  if (visit_codes(call.weight.format, codes)) return;
  visit_stored(call.weight.format, [&]<class T>() {
    launch(matmul_kernel<FloatsSource<T>>, grid, kThreads, 0, stream, call);
  });
}

}  // namespace lockstep::exec::cuda
