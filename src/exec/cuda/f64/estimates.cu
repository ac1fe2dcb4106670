// Products in single precision, by the operations of exec/f64/kernels/: a chain of fused
// multiply-adds within a block of columns, and the sums after each block.
#include "exec/cuda/f64/calls.h"

namespace lockstep::exec::cuda {
namespace {

using f64::kEstimateBlock;

constexpr int kTile = 64;      // results of a block of threads, along either side
constexpr int kThreads = 128;  // 8 along w and 16 along x
constexpr int kAlongW = 8;
constexpr int kOfW = 8;  // results of a thread
constexpr int kOfX = 4;
constexpr int kChunk = 16;  // columns in shared memory
constexpr int kStride = kTile + 4;
constexpr int kLoads = kTile * kChunk / 4 / kThreads;  // of four numbers each

template <bool kPartial, bool kSquared>
__global__ __launch_bounds__(kThreads,
                             2) void estimate_kernel(const __grid_constant__ EstimateCall call) {
  __shared__ float ws[kChunk][kStride];
  __shared__ float xs[kChunk][kStride];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first_w = int64_t{blockIdx.x} * kTile;
  const int64_t first_x = int64_t{blockIdx.y} * kTile;
  const int w_place = thread % kAlongW * 4;  // and as many from the middle of the tile on
  const int x_place = thread / kAlongW * kOfX;

  float sum[kOfW][kOfX] = {};
  float partial[kOfW][kOfX] = {};
  float squares[kOfW][kOfX] = {};
  for (int64_t block = 0; block < call.blocks; ++block) {
    float now[kOfW][kOfX] = {};
    for (int64_t column = 0; column < kEstimateBlock; column += kChunk) {
      float4 w[kLoads], x[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int place = thread + i * kThreads;
        const int row = place / (kChunk / 4);
        const int64_t from = column + place % (kChunk / 4) * 4;
        w[i] = x[i] = make_float4(0, 0, 0, 0);
        if (first_w + row < call.w_rows)
          w[i] = *reinterpret_cast<const float4*>(
              call.w + ((first_w + row) * call.blocks + block) * kEstimateBlock + from);
        if (first_x + row < call.x_rows)
          x[i] = *reinterpret_cast<const float4*>(
              call.x + (block * call.x_rows + first_x + row) * kEstimateBlock + from);
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int place = thread + i * kThreads;
        const int row = place / (kChunk / 4);
        const int k = place % (kChunk / 4) * 4;
        const float of_w[4] = {w[i].x, w[i].y, w[i].z, w[i].w};
        const float of_x[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          ws[k + j][row] = kSquared ? __fmul_rn(of_w[j], of_w[j]) : of_w[j];
          xs[k + j][row] = of_x[j];
        }
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
        const float4 low = *reinterpret_cast<const float4*>(&ws[k][w_place]);
        const float4 high = *reinterpret_cast<const float4*>(&ws[k][kTile / 2 + w_place]);
        const float4 four = *reinterpret_cast<const float4*>(&xs[k][x_place]);
        const float of_w[kOfW] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        const float of_x[kOfX] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < kOfW; ++i)
#pragma unroll
          for (int j = 0; j < kOfX; ++j) now[i][j] = __fmaf_rn(of_w[i], of_x[j], now[i][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < kOfW; ++i)
#pragma unroll
      for (int j = 0; j < kOfX; ++j) {
        const float next = __fadd_rn(sum[i][j], now[i][j]);
        sum[i][j] = next;
        if constexpr (kPartial) {
          partial[i][j] = __fadd_rn(partial[i][j], next);
          squares[i][j] = __fmaf_rn(next, next, squares[i][j]);
        }
      }
  }
#pragma unroll
  for (int i = 0; i < kOfW; ++i)
#pragma unroll
    for (int j = 0; j < kOfX; ++j) {
      const int64_t r = first_w + w_place + i % 4 + (i < 4 ? 0 : kTile / 2);
      const int64_t t = first_x + x_place + j;
      if (r >= call.w_rows || t >= call.x_rows) continue;
      const int64_t place = t * call.out_stride + r;
      call.out.sum[place] = sum[i][j];
      if constexpr (kPartial) {
        call.out.partial[place] = partial[i][j];
        call.out.partial_squares[place] = squares[i][j];
      }
    }
}

// A thread has one sum.
__global__ void sums_of_squares_kernel(const float* w, int64_t rows, int64_t columns,
                                       int64_t together, float* out) {
  const int64_t sums = (columns + together - 1) / together;
  const int64_t stride = padded_columns(sums);
  const int64_t place = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (place >= rows * stride) return;
  const int64_t first = place % stride * together;
  const float* row = w + place / stride * padded_columns(columns);
  float sum = 0;
  for (int64_t i = first; i < min(columns, first + together); ++i)
    sum = __fadd_rn(sum, __fmul_rn(row[i], row[i]));
  out[place] = sum;
}

}  // namespace

void run_sums_of_squares(const float* w, int64_t rows, int64_t columns, int64_t together,
                         float* out, cudaStream_t stream) {
  constexpr int64_t kOfABlock = 256;
  const int64_t all = rows * padded_columns((columns + together - 1) / together);
  sums_of_squares_kernel<<<static_cast<unsigned>((all + kOfABlock - 1) / kOfABlock), kOfABlock, 0,
                           stream>>>(w, rows, columns, together, out);
}

void run_estimate(const EstimateCall& call, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((call.w_rows + kTile - 1) / kTile),
                  static_cast<unsigned>((call.x_rows + kTile - 1) / kTile));
  const bool partial = call.out.partial != nullptr;
  if (partial && call.squared)
    estimate_kernel<true, true><<<grid, kThreads, 0, stream>>>(call);
  else if (partial)
    estimate_kernel<true, false><<<grid, kThreads, 0, stream>>>(call);
  else if (call.squared)
    estimate_kernel<false, true><<<grid, kThreads, 0, stream>>>(call);
  else
    estimate_kernel<false, false><<<grid, kThreads, 0, stream>>>(call);
}

}  // namespace lockstep::exec::cuda
