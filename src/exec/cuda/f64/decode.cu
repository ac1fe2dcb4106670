// Weights as they lie in the file, to floats, by the decoding of quant/.
#include "exec/cuda/f64/calls.h"
#include "quant/blocks.h"

namespace lockstep::exec::cuda {
namespace {

constexpr int kDecodeThreads = 128;

// body(block, number) for the numbers of so many blocks: a block for a warp, or a number for a
// thread where blocks are small.
template <int kOfABlock, class Body>
__device__ void for_numbers(int blocks, const Body& body) {
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kOfABlock < 16) {
    for (int i = thread; i < blocks * kOfABlock; i += kDecodeThreads)
      body(i / kOfABlock, i % kOfABlock);
  } else {
    for (int block = thread / 32; block < blocks; block += kDecodeThreads / 32)
#pragma unroll
      for (int i = 0; i < kOfABlock; i += 32)
        if (i + thread % 32 < kOfABlock) body(block, i + thread % 32);
  }
}

// Each thread decodes a block. Blocks are read, and their numbers written, by all threads in order:
// both pass through shared memory.
template <class Block>
__global__ void decode_kernel(const __grid_constant__ DecodeCall call, int64_t stride) {
  constexpr int kBlocks = Block::kValues >= 256 ? 32 : kDecodeThreads;
  constexpr int kStep = Block::kValues + 1;  // so that threads do not meet in one bank
  constexpr int kBytes = sizeof(Block);
  __shared__ float numbers[kBlocks * kStep];
  __shared__ alignas(16) std::byte stored[kBlocks * kBytes];
  // Of each block: where its bytes are, and where its numbers go. Divisions are slow.
  __shared__ int64_t sources[kBlocks], targets[kBlocks];
  const int64_t in_row = call.columns / Block::kValues;
  const int64_t first = int64_t{blockIdx.x} * kBlocks;
  const auto count = static_cast<int>(min(int64_t{kBlocks}, call.rows * in_row - first));
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < count) {
    const int64_t row = (first + thread) / in_row;
    const int64_t place = first + thread - row * in_row;
    const int64_t from = call.chosen != nullptr ? call.chosen[row] : row;
    sources[thread] = (from * in_row + place) * kBytes;
    targets[thread] = row * stride + place * Block::kValues;
  }
  __syncthreads();
  for_numbers<kBytes>(count, [&](int block, int byte) {
    stored[block * kBytes + byte] = call.blocks[sources[block] + byte];
  });
  __syncthreads();
  if (thread < count)
    quant::decode(reinterpret_cast<const Block*>(stored)[thread], numbers + thread * kStep);
  __syncthreads();
  for_numbers<Block::kValues>(count, [&](int block, int value) {
    call.out[targets[block] + value] = numbers[block * kStep + value];
  });
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
