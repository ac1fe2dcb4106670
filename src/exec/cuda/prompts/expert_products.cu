// Products of experts with the rows that chose them, on the tensor cores. A block takes a tile of
// an expert's rows of x (at most 64) and 128 or 64 rows of its weight, a warp 32 or 16 of these. A
// warp decodes its weights to halves in registers, as mma wants them, so that no weight is decoded
// twice for a tile and none goes through shared memory.
//
// Four lanes share a row of the weight. A step takes four units of 32 columns of it, and each of
// the lanes has one whole unit: a k of mma is therefore not a column, but which column it is does
// not matter, as long as weights and rows of x have the same.
#include "exec/cuda/kernels.h"
#include "exec/cuda/prompts/expert_weights.cuh"
#include "exec/cuda/prompts/halves.cuh"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/launch.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kExpertWarps = 4, kExpertThreads = kExpertWarps * kWarp;
constexpr int kStepUnits = 4, kStages = 3;
constexpr int kStepColumns = kStepUnits * kUnit;
// Halves from unit to unit of a tile: eight more, so that the lanes of four meet in no bank.
constexpr int kUnitStride = kExpertTile * kUnit + 8;
constexpr int kPlane = kStepUnits * kUnitStride;  // halves of a stage
// Rows of x that the threads copy at once, 16 bytes each.
constexpr int kRowsAtOnce = kExpertThreads / 4, kCopies = kExpertTile / kRowsAtOnce;

template <class Source>
constexpr int kExpertShared = kStages* kPlane * 2 * (Source::kFloat ? 2 : 1);

template <class Source>
__global__ void __launch_bounds__(kExpertThreads, Source::kBlocks)
    expert_products_kernel(const __grid_constant__ ExpertProductsCall call) {
  constexpr int kTiles = Source::kTiles, kRowsOfWarp = 16 * kTiles;
  constexpr int kPairs = kExpertTile / 16;  // of columns of mma
  constexpr int kPlanes = Source::kFloat ? 2 : 1;
  extern __shared__ __align__(16) __half stages[];  // [stages][planes][units][tile][32]
  __shared__ int rows_of_tile[kExpertTile];
  let_next_start();
  wait_for_inputs();
  if (static_cast<int>(blockIdx.y) >= *call.groups.tile_count) return;
  const ExpertTile tile = call.groups.tiles[blockIdx.y];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int blocks_of_product =
      (static_cast<int>(call.rows) + kExpertWarps * kRowsOfWarp - 1) / (kExpertWarps * kRowsOfWarp);
  const int which = static_cast<int>(blockIdx.x) / blocks_of_product;
  const ExpertProductsCall::Product& product = call.products[which];
  const WeightView& weight = product.weight;
  const int first_row =
      (static_cast<int>(blockIdx.x) % blocks_of_product * kExpertWarps + warp) * kRowsOfWarp;
  const int steps = static_cast<int>((weight.columns + kStepColumns - 1) / kStepColumns);
  const int columns = static_cast<int>(weight.columns);

  // A thread copies 8 of 32 columns of each unit, of some rows of x.
  const __half* from[kCopies];
  bool copies[kCopies];
#pragma unroll
  for (int k = 0; k < kCopies; ++k) {
    const int n = thread / 4 + k * kRowsAtOnce;
    copies[k] = n < tile.count;
    const int row = call.groups.order[tile.first + (copies[k] ? n : 0)];
    if (thread % 4 == 0) rows_of_tile[n] = row;
    from[k] = static_cast<const __half*>(call.x.high) +
              int64_t{row / call.rows_that_share} * columns + thread % 4 * 8;
  }
  const int64_t low_plane = Source::kFloat ? static_cast<const __half*>(call.x.low) -
                                                 static_cast<const __half*>(call.x.high)
                                           : 0;
  const auto start_copy = [&](int step) {
    if (step < steps) {
      const int left = columns - step * kStepColumns - thread % 4 * 8;
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane) {
        __half* to = stages + (step % kStages * kPlanes + plane) * kPlane + thread * 8;
#pragma unroll
        for (int k = 0; k < kCopies; ++k)
          if (copies[k])
#pragma unroll
            for (int u = 0; u < kStepUnits; ++u)
              copy_16(to + u * kUnitStride + k * kRowsAtOnce * kUnit,
                      from[k] + plane * low_plane + step * kStepColumns + u * kUnit,
                      u * kUnit < left);
      }
    }
    end_group();
  };
  start_copy(0);
  start_copy(1);

  // This lane has the rows `upper` and upper + 8 of each 16 of the weight.
  const int upper = lane / 4, unit_of_lane = lane % 4;
  Source now[kTiles][2], next[kTiles][2];
  RowPlace places[kTiles][2];
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int row = min(first_row + i * 16 + k * 8 + upper, static_cast<int>(call.rows) - 1);
      const int units = columns / kUnit;
      places[i][k].row = tile.expert * call.rows + row;
      places[i][k].units = static_cast<int>(places[i][k].row) * units;
      places[i][k].blocks = static_cast<int>(places[i][k].row) * (units / kUnitsOfBlock);
    }
  const auto load = [&](Source(&into)[kTiles][2], int step) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        into[i][k].load(weight, places[i][k], step * kStepUnits + unit_of_lane);
  };
  load(next, 0);
  const float scale = scale_for(*product.largest);
  float sums[kTiles][2 * kPairs][4] = {};
  float small_sums[Source::kFloat ? kTiles : 1][2 * kPairs][4] = {};
  const int pairs = (tile.count + 15) / 16;
  for (int step = 0; step < steps; ++step) {
    typename Source::Scaled scaled[kTiles][2];
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        now[i][k] = next[i][k];
        scaled[i][k] = now[i][k].scaled(weight, step * kStepUnits + unit_of_lane, scale);
      }
    if (step + 1 < steps) load(next, step + 1);
    wait_for_groups<1>();
    __syncthreads();  // the step before has been read
    start_copy(step + 2);
    const __half* tile_x =
        stages + step % kStages * kPlanes * kPlane + unit_of_lane * kUnitStride + upper * kUnit;
    // In floating point the sums of a step are apart: the tensor cores cut off what a sum has no
    // room for.
    float step_sums[Source::kFloat ? kTiles : 1][2 * kPairs][4] = {};
#pragma unroll
    for (int c = 0; c < kUnit / 8; ++c) {  // eight columns of each unit: two mma
      Left high[kTiles][2], low[kTiles][2];
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int s = 0; s < 2; ++s)
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            const FourHalves four = now[i][k].four(scaled[i][k], 2 * c + s);
            high[i][s].words[k] = four.high[0];
            high[i][s].words[k + 2] = four.high[1];
            low[i][s].words[k] = four.low[0];
            low[i][s].words[k + 2] = four.low[1];
          }
      const auto x_at = [&](int plane, int n) {
        return *reinterpret_cast<const uint4*>(tile_x + plane * kPlane + n * 8 * kUnit + c * 8);
      };
      uint4 ahead[2][kPlanes];
      const auto fetch = [&](int pair) {
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int plane = 0; plane < kPlanes; ++plane) ahead[n][plane] = x_at(plane, 2 * pair + n);
      };
      fetch(0);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        if (pair >= pairs) break;
        uint4 x[2][kPlanes];
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
          for (int plane = 0; plane < kPlanes; ++plane) x[n][plane] = ahead[n][plane];
        if (pair + 1 < kPairs) fetch(pair + 1);
#pragma unroll
        for (int s = 0; s < 2; ++s)
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const auto right = [&](const uint4& four) {
              return s == 0 ? Right{{four.x, four.y}} : Right{{four.z, four.w}};
            };
            const int at = 2 * pair + n;
#pragma unroll
            for (int i = 0; i < kTiles; ++i) {
              if constexpr (Source::kFloat) {
                multiply_add(step_sums[i][at], high[i][s], right(x[n][0]));
                multiply_add(small_sums[i][at], high[i][s], right(x[n][1]));
                if constexpr (Source::kSplitWeight)
                  multiply_add(small_sums[i][at], low[i][s], right(x[n][0]));
              } else {
                multiply_add(sums[i][at], high[i][s], right(x[n][0]));
              }
            }
          }
      }
    }
    if constexpr (Source::kFloat) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int n = 0; n < 2 * kPairs; ++n)
#pragma unroll
          for (int k = 0; k < 4; ++k) sums[i][n][k] += step_sums[i][n][k];
    }
  }

  const float factor = call.factors[which];
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int row = first_row + i * 16 + k * 8 + upper;
      if (row >= call.rows) continue;
      const float bias =
          product.bias != nullptr ? product.bias[int64_t{tile.expert} * call.rows + row] : 0.0f;
#pragma unroll
      for (int n = 0; n < 2 * kPairs; ++n)
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          const int at = n * 8 + unit_of_lane * 2 + b;
          if (at >= tile.count) continue;
          float sum = sums[i][n][2 * k + b];
          if constexpr (Source::kFloat) sum += small_sums[i][n][2 * k + b];
          sum *= factor;
          product.out[int64_t{rows_of_tile[at]} * call.rows + row] =
              product.bias != nullptr ? sum + bias : sum;
        }
    }
}

// False where the kernel was not compiled for tensor cores of this kind, or the GPU has too little
// shared memory.
template <class Source>
bool launch_products(const ExpertProductsCall& call, bool tries, cudaStream_t stream) {
  const auto kernel = expert_products_kernel<Source>;
  if (tries) {
    const bool fits = made_for_hopper() &&
                      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           kExpertShared<Source>) == cudaSuccess;
    if (!fits) cudaGetLastError();
    return fits;
  }
  constexpr int64_t kRows = kExpertWarps * 16 * Source::kTiles;
  const dim3 grid(static_cast<unsigned>((call.rows + kRows - 1) / kRows * call.count),
                  static_cast<unsigned>(call.groups.most_tiles));
  launch(kernel, grid, kExpertThreads, kExpertShared<Source>, stream, call);
  return true;
}

bool visit_products(const ExpertProductsCall& call, bool tries, cudaStream_t stream) {
  bool done = false;
  const quant::Format format = call.products[0].weight.format;
  const auto codes = [&]<quant::Format K>() {
    done = launch_products<ExpertCodes<K>>(call, tries, stream);
  };
  if (!visit_codes(format, codes))
    visit_stored(format,
                 [&]<class T>() { done = launch_products<ExpertFloats<T>>(call, tries, stream); });
  return done;
}

}  // namespace

bool can_run_expert_products(quant::Format format) {
  ExpertProductsCall call;
  call.products[0].weight.format = format;
  return visit_products(call, true, nullptr);
}

void run_expert_products(const ExpertProductsCall& call, cudaStream_t stream) {
  visit_products(call, false, stream);
}

}  // namespace lockstep::exec::cuda
