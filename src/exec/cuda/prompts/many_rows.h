// Products of weights with many rows, as in prompts: by the tensor cores where cuBLASLt is there.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "exec/cuda/calls.h"
#include "exec/cuda/prompts/blas.h"
#include "exec/cuda/shared/memory.h"

namespace lockstep::exec::cuda {

// Weights become halves, once and for all where memory allows and each time where it does not.
// Weights in floating point keep all their bits, and so do the rows that meet them, as two halves
// each; rows that meet quantized weights are rounded to one half. The halves of a row lie side by
// side, and so do those of a weight (calls.h): one product takes them all.
class ManyRows {
 public:
  // Starts cuBLASLt on a thread of its own, so that weights can be loaded meanwhile.
  ManyRows() : starting_blas_(std::async(std::launch::async, Blas::load)) {}

  struct Product {
    WeightView weight;
    const float* bias = nullptr;  // may be null
    float* out = nullptr;         // [tokens, rows of the weight]
  };
  // To be called first in a step: one that was cancelled may have left a largest magnitude.
  Result<void> begin(cudaStream_t stream);
  // Where a kPrepare puts up to `tokens` rows for the next multiply(), which takes all these
  // weights. Null: they are not asked for.
  Result<RowHalves> place_of_rows(std::span<const WeightView> weights, int64_t tokens,
                                  cudaStream_t stream);
  // Products with the same rows x [tokens, columns].
  Result<void> multiply(const float* x, int64_t tokens, std::vector<Product> products,
                        cudaStream_t stream);

 private:
  struct HalfWeights {
    DeviceMemory memory;
    WeightHalves halves;  // one after another, where there are several
  };
  Result<WeightHalves> halves_of(std::span<const Product> group, HalfWeights& scratch,
                                 cudaStream_t stream);
  Result<void> multiply_some(const float* x, int64_t tokens,
                             std::span<const std::span<const Product>> groups, cudaStream_t stream);
  bool goes_to_blas(int64_t columns);

  std::future<std::unique_ptr<Blas>> starting_blas_;
  std::unique_ptr<Blas> blas_;                      // null where the library is missing
  DeviceMemory rows_;                               // x as halves
  int parts_ = 0;                                   // of these
  HalfWeights scratch_[kMostProducts];              // of weights that do not stay
  std::map<const uint8_t*, HalfWeights> resident_;  // by the first of them
  DeviceMemory numbers_;  // two largest magnitudes that take turns, and a factor for each product
  int turn_ = 0;
};

}  // namespace lockstep::exec::cuda
