// Products in double precision, by the operations of exec/reference/sums.h in their order: each has
// eight running sums, by the number of the column, and after kBlock columns these go into sums that
// lose nothing.
#include "exec/cuda/f64/calls.h"
#include "exec/cuda/f64/sums.cuh"

namespace lockstep::exec::cuda {
namespace {

using f64::kBlock;
using f64::kLanes;

template <bool kExact>
__device__ inline double multiply_add(double w, double x, double sum) {
  return kExact ? __fma_rn(w, x, sum) : __dadd_rn(sum, __dmul_rn(w, x));
}

template <bool kSquared>
__device__ inline double factor(float w) {
  const auto number = static_cast<double>(w);
  return kSquared ? __dmul_rn(number, number) : number;
}

__device__ inline void write(const DoubleProductCall& call, int64_t t, int64_t r, double value) {
  if (call.bias != nullptr) value = __dadd_rn(value, static_cast<double>(call.bias[r]));
  call.out[t * call.out_stride + r] = value;
}

// A block has a tile of results. Eight threads share a part of it, a running sum each.
constexpr int kTile = 32;
constexpr int kThreadTile = 4;                // rows of w, and of x
constexpr int kGroups = kTile / kThreadTile;  // of threads, along either side
constexpr int kTileThreads = kGroups * kGroups * kLanes;
constexpr int kChunk = 32;                             // columns in shared memory
constexpr int kChunkStride = kChunk + 8;               // so that rows do not meet in one bank
constexpr int kLoads = kTile * kChunk / kTileThreads;  // numbers of each matrix a thread

template <bool kExact, bool kSquared>
__global__ __launch_bounds__(kTileThreads,
                             1) void tile_kernel(const __grid_constant__ DoubleProductCall call) {
  __shared__ double ws[2][kTile][kChunkStride];
  __shared__ double xs[2][kTile][kChunkStride];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes;
  // Neighbours within half a warp have neighbouring rows of w.
  const int w_group = thread / kLanes % 2 + 2 * (thread / 32 % 4);
  const int x_group = thread / (2 * kLanes) % 2 + 2 * (thread / 128);
  const int64_t first_w = int64_t{blockIdx.x} * kTile;
  const int64_t first_x = int64_t{blockIdx.y} * kTile;

  float next_w[kLoads];
  double next_x[kLoads];
  const auto load = [&](int64_t column) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int row = (thread + i * kTileThreads) / kChunk;
      const int64_t from = column + thread % kChunk;
      const int64_t r = first_w + row;
      const int64_t t = first_x + row;
      next_w[i] = r < call.w_rows && from < call.columns ? call.w[r * call.columns + from] : 0.0f;
      next_x[i] = t < call.x_rows && from < call.columns ? call.x[t * call.columns + from] : 0.0;
    }
  };
  const auto store = [&](int buffer) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int row = (thread + i * kTileThreads) / kChunk;
      ws[buffer][row][thread % kChunk] = factor<kSquared>(next_w[i]);
      xs[buffer][row][thread % kChunk] = next_x[i];
    }
  };

  double block[kThreadTile][kThreadTile] = {};
  double sums[kThreadTile][kThreadTile] = {};
  double lost[kThreadTile][kThreadTile] = {};
  load(0);
  store(0);
  __syncthreads();
  int buffer = 0;
  for (int64_t column = 0; column < call.columns; column += kChunk, buffer ^= 1) {
    const bool more = column + kChunk < call.columns;
    if (more) load(column + kChunk);
#pragma unroll
    for (int k = 0; k < kChunk; k += kLanes) {
      double w[kThreadTile], x[kThreadTile];
#pragma unroll
      for (int i = 0; i < kThreadTile; ++i) w[i] = ws[buffer][w_group + i * kGroups][k + lane];
#pragma unroll
      for (int j = 0; j < kThreadTile; ++j) x[j] = xs[buffer][x_group + j * kGroups][k + lane];
#pragma unroll
      for (int i = 0; i < kThreadTile; ++i)
#pragma unroll
        for (int j = 0; j < kThreadTile; ++j)
          block[i][j] = multiply_add<kExact>(w[i], x[j], block[i][j]);
    }
    if (!more || (column + kChunk) % kBlock == 0)
#pragma unroll
      for (int i = 0; i < kThreadTile; ++i)
#pragma unroll
        for (int j = 0; j < kThreadTile; ++j) {
          add_exactly(block[i][j], sums[i][j], lost[i][j]);
          block[i][j] = 0;
        }
    if (more) store(buffer ^ 1);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kThreadTile; ++i)
#pragma unroll
    for (int j = 0; j < kThreadTile; ++j) {
      const double value = with_lost(across_lanes(sums[i][j]), across_lanes(lost[i][j]));
      const int64_t r = first_w + w_group + i * kGroups;
      const int64_t t = first_x + x_group + j * kGroups;
      if (lane == (i * kThreadTile + j) % kLanes && r < call.w_rows && t < call.x_rows)
        write(call, t, r, value);
    }
}

// A warp has one row of w and one of x: four blocks of columns at a time.
constexpr int kRowThreads = 256;
constexpr int kBlocksAtOnce = 32 / kLanes;

__global__ void row_kernel(const __grid_constant__ DoubleProductCall call) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t r = int64_t{blockIdx.x} * (kRowThreads / 32) + threadIdx.x / 32;
  const int64_t t = blockIdx.y;
  if (r >= call.w_rows) return;
  const float* w = call.w + r * call.columns;
  const double* x = call.x + t * call.columns;
  double sum = 0;
  double lost = 0;
  for (int64_t first = 0; first < call.columns; first += kBlocksAtOnce * kBlock) {
    const int64_t begin = first + lane / kLanes * kBlock;
    const int64_t end = min(begin + kBlock, call.columns);
    double block = 0;
#pragma unroll 8
    for (int64_t i = begin + lane % kLanes; i < end; i += kLanes)
      block = multiply_add<false>(static_cast<double>(w[i]), x[i], block);
#pragma unroll
    for (int i = 0; i < kBlocksAtOnce; ++i) {
      const double term = __shfl_sync(~0u, block, i * kLanes + lane % kLanes);
      if (first + i * kBlock < call.columns) add_exactly(term, sum, lost);
    }
  }
  const double value = with_lost(across_lanes(sum), across_lanes(lost));
  if (lane == 0) write(call, t, r, value);
}

}  // namespace

void run_double_product(const DoubleProductCall& call, cudaStream_t stream) {
  constexpr int64_t kFewRows = 4;
  if (call.x_rows <= kFewRows && !call.squared) {
    constexpr int64_t kWarps = kRowThreads / 32;
    const dim3 grid(static_cast<unsigned>((call.w_rows + kWarps - 1) / kWarps),
                    static_cast<unsigned>(call.x_rows));
    row_kernel<<<grid, kRowThreads, 0, stream>>>(call);
    return;
  }
  const dim3 grid(static_cast<unsigned>((call.w_rows + kTile - 1) / kTile),
                  static_cast<unsigned>((call.x_rows + kTile - 1) / kTile));
  if (call.squared)
    tile_kernel<false, true><<<grid, kTileThreads, 0, stream>>>(call);
  else if (call.exact)
    tile_kernel<true, false><<<grid, kTileThreads, 0, stream>>>(call);
  else
    tile_kernel<false, false><<<grid, kTileThreads, 0, stream>>>(call);
}

}  // namespace lockstep::exec::cuda
