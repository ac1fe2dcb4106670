// Rows of a weight as numbers.
#include "exec/cuda/kernels.h"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/launch.cuh"
#include "exec/cuda/weights/unit.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kThreads = 256;

template <CodeFormat F>
__device__ float number(const WeightView& table, int64_t row, int64_t column) {
  Unit<F> unit;
  unit.load(table, row, column / kUnit);
  const float4 four = unit.numbers(static_cast<int>(column % kUnit / 4));
  switch (column % 4) {
    case 0:
      return four.x;
    case 1:
      return four.y;
    case 2:
      return four.z;
    default:
      return four.w;
  }
}

// As quant/ decodes it, bit for bit.
__device__ float number(const WeightView& table, int64_t row, int64_t column) {
  using quant::Format;
  switch (table.format) {
    case Format::kF32:
      return Stored<quant::BlockF32>::number(table.codes + row * table.row_stride * 4, column);
    case Format::kF16:
      return Stored<quant::BlockF16>::number(table.codes + row * table.row_stride * 2, column);
    case Format::kBF16:
      return Stored<quant::BlockBF16>::number(table.codes + row * table.row_stride * 2, column);
    case Format::kQ4_0:
      return number<kCodesQ4_0>(table, row, column);
    case Format::kQ4_1:
      return number<kCodesQ4_1>(table, row, column);
    case Format::kQ5_0:
      return number<kCodesQ5_0>(table, row, column);
    case Format::kQ5_1:
      return number<kCodesQ5_1>(table, row, column);
    case Format::kQ8_0:
      return number<kCodesQ8_0>(table, row, column);
    case Format::kQ2_K:
      return number<kCodesQ2_K>(table, row, column);
    case Format::kQ3_K:
      return number<kCodesQ3_K>(table, row, column);
    case Format::kQ4_K:
      return number<kCodesQ4_K>(table, row, column);
    case Format::kQ5_K:
      return number<kCodesQ5_K>(table, row, column);
    case Format::kQ6_K:
      return number<kCodesQ6_K>(table, row, column);
    case Format::kIQ4_NL:
      return number<kCodesIQ4_NL>(table, row, column);
    case Format::kIQ4_XS:
      return number<kCodesIQ4_XS>(table, row, column);
    case Format::kMXFP4:
      return number<kCodesMXFP4>(table, row, column);
  }
  return 0;
}

// For all threads of the block.
__device__ int64_t chosen_token(const EmbedCall& call) {
  __shared__ uint64_t shared[kThreads / kWarp];
  uint64_t key = 0;
  for (int i = static_cast<int>(threadIdx.x); i < call.best_count; i += kThreads)
    key = max(key, call.best[i].key);
  key = warp_max(key);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = key;
  __syncthreads();
  for (const uint64_t other : shared) key = max(key, other);
  return BestLogit{key}.token();
}

__global__ void embed_kernel(const __grid_constant__ EmbedCall call) {
  let_next_start();
  wait_for_inputs();
  const int64_t t = call.first_row + blockIdx.x;
  int64_t row = call.token_ids != nullptr ? call.token_ids[t] : call.state->first_position + t;
  if (row < 0 && call.best != nullptr) row = chosen_token(call);
  for (int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x; i < call.table.columns;
       i += int64_t{gridDim.y} * kThreads)
    call.out[t * call.table.columns + i] = number(call.table, row, i);
}

}  // namespace

bool made_for_hopper() {
  static const bool made = [] {
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, embed_kernel) == cudaSuccess)
      return attributes.ptxVersion >= 90;
    cudaGetLastError();
    return false;
  }();
  return made;
}

void run_embed(const EmbedCall& call, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(call.tokens - call.first_row),
                  static_cast<unsigned>((call.table.columns + kThreads - 1) / kThreads));
  launch(embed_kernel, grid, kThreads, 0, stream, call);
}

}  // namespace lockstep::exec::cuda
