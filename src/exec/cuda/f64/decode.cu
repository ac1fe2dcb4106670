// Weights as they lie in the file, to floats, by the decoding of quant/.
#include "exec/cuda/f64/calls.h"
#include "quant/blocks.h"

namespace lockstep::exec::cuda {
namespace {

constexpr int kDecodeThreads = 128;

// Each thread decodes a block. Blocks are read, and their numbers written, by all threads in order:
// both pass through shared memory.
template <class Block>
__global__ void decode_kernel(const __grid_constant__ DecodeCall call, int64_t stride) {
  constexpr int kBlocks = Block::kValues >= 256 ? 32 : kDecodeThreads;
  constexpr int kStep = Block::kValues + 1;  // so that threads do not meet in one bank
  __shared__ float numbers[kBlocks * kStep];
  __shared__ alignas(16) std::byte stored[kBlocks * sizeof(Block)];
  const int64_t in_row = call.columns / Block::kValues;
  const int64_t all = call.rows * in_row;
  const int64_t first = int64_t{blockIdx.x} * kBlocks;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kBlocks * static_cast<int>(sizeof(Block)); i += kDecodeThreads) {
    const int64_t block = first + i / static_cast<int>(sizeof(Block));
    if (block >= all) break;
    const int64_t row = call.chosen != nullptr ? call.chosen[block / in_row] : block / in_row;
    stored[i] = call.blocks[(row * in_row + block % in_row) * static_cast<int64_t>(sizeof(Block)) +
                            i % static_cast<int>(sizeof(Block))];
  }
  __syncthreads();
  if (thread < kBlocks && first + thread < all)
    quant::decode(reinterpret_cast<const Block*>(stored)[thread], numbers + thread * kStep);
  __syncthreads();
  for (int i = thread; i < kBlocks * Block::kValues; i += kDecodeThreads) {
    const int64_t block = first + i / Block::kValues;
    if (block >= all) break;
    const int value = i % Block::kValues;
    call.out[block / in_row * stride + block % in_row * Block::kValues + value] =
        numbers[i / Block::kValues * kStep + value];
  }
}

template <class Block>
void start(const DecodeCall& call, cudaStream_t stream) {
  constexpr int64_t kBlocks = Block::kValues >= 256 ? 32 : kDecodeThreads;
  const int64_t all = call.rows * (call.columns / Block::kValues);
  decode_kernel<Block>
      <<<static_cast<unsigned>((all + kBlocks - 1) / kBlocks), kDecodeThreads, 0, stream>>>(
          call, padded_columns(call.columns));
}

}  // namespace

void run_decode(const DecodeCall& call, cudaStream_t stream) {
  const int64_t stride = padded_columns(call.columns);
  if (stride > call.columns)
    cudaMemset2DAsync(call.out + call.columns, static_cast<size_t>(stride) * sizeof(float), 0,
                      static_cast<size_t>(stride - call.columns) * sizeof(float),
                      static_cast<size_t>(call.rows), stream);
  quant::visit_format(call.format, [&]<class Block>(Block) { start<Block>(call, stream); });
}

}  // namespace lockstep::exec::cuda
