// Rows of a prompt by expert: which rows (one for each token and chosen expert) meet which expert,
// and the tiles of rows that products are computed in. Orders are fixed; only whole numbers are
// counted at once.
#include "exec/cuda/kernels.h"
#include "exec/cuda/shared/block.cuh"
#include "exec/cuda/shared/launch.cuh"

namespace lockstep::exec::cuda {
namespace {

constexpr int kGroupThreads = 512, kGroupWarps = kGroupThreads / kWarp;

// A block finds the rows of its expert. It counts those of all experts, to know which come before.
__global__ void __launch_bounds__(kGroupThreads)
    group_kernel(const __grid_constant__ GroupCall call) {
  extern __shared__ int counts[];  // [experts]
  __shared__ int rows_before, tiles_before, of_warp[kGroupWarps];
  let_next_start();
  wait_for_inputs();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int experts = static_cast<int>(call.experts), expert = static_cast<int>(blockIdx.x);
  const int rows = static_cast<int>(call.rows);
  for (int i = thread; i < experts; i += kGroupThreads) counts[i] = 0;
  if (thread == 0) rows_before = tiles_before = 0;
  __syncthreads();

  // A warp goes through consecutive rows.
  const int share = (rows + kGroupThreads - 1) / kGroupThreads * kWarp;
  const int begin = warp * share, end = min(begin + share, rows);
  const auto expert_of = [&](int row) {
    return row < end ? static_cast<int>(call.choice[row]) : -1;
  };
  int own = 0;
#pragma unroll 4
  for (int first = begin; first < end; first += kWarp) {
    const int chosen = expert_of(first + lane);
    if (chosen >= 0) atomicAdd(counts + chosen, 1);
    own += __popc(__ballot_sync(~0u, chosen == expert));
  }
  if (lane == 0) of_warp[warp] = own;
  __syncthreads();

  const auto tiles_of = [](int count) { return (count + kExpertTile - 1) / kExpertTile; };
  for (int i = thread; i < expert; i += kGroupThreads) {
    if (counts[i] == 0) continue;
    atomicAdd(&rows_before, counts[i]);
    atomicAdd(&tiles_before, tiles_of(counts[i]));
  }
  __syncthreads();
  const int count = counts[expert], tiles = tiles_of(count);
  // Tiles of about the same size, of whole columns of the tensor cores.
  const int size = tiles > 0 ? ((count + tiles - 1) / tiles + 7) / 8 * 8 : 0;
  for (int i = thread; i < tiles; i += kGroupThreads)
    call.out.tiles[tiles_before + i] = {expert, rows_before + i * size,
                                        min(size, count - i * size)};
  if (expert == experts - 1 && thread == 0) *call.out.tile_count = tiles_before + tiles;

  int place = rows_before;
  for (int i = 0; i < warp; ++i) place += of_warp[i];
#pragma unroll 4
  for (int first = begin; first < end; first += kWarp) {
    const bool mine = expert_of(first + lane) == expert;
    const uint32_t all = __ballot_sync(~0u, mine);
    if (mine) call.out.order[place + __popc(all & ((1u << lane) - 1))] = first + lane;
    place += __popc(all);
  }
}

}  // namespace

void run_group(const GroupCall& call, cudaStream_t stream) {
  launch(group_kernel, dim3(static_cast<unsigned>(call.experts)), kGroupThreads,
         static_cast<size_t>(call.experts) * sizeof(int), stream, call);
}

}  // namespace lockstep::exec::cuda
