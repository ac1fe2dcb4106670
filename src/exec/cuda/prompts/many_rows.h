// Products of weights with many rows, as in prompts: by the tensor cores where cuBLASLt is there.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "exec/cuda/calls.h"
#include "exec/cuda/prompts/blas.h"
#include "exec/cuda/shared/memory.h"

namespace lockstep::exec::cuda {

// Weights become halves, once and for all where memory allows and each time where it does not.
// Weights in floating point keep all their bits, and so do the rows that meet them, as two halves
// each; rows that meet quantized weights are rounded to one half.
class ManyRows {
 public:
  struct Product {
    WeightView weight;
    const float* bias = nullptr;  // may be null
    float* out = nullptr;         // [tokens, rows of the weight]
  };
  // To be called first in a step: one that was cancelled may have left a largest magnitude.
  Result<void> begin(cudaStream_t stream);
  // Where the largest magnitude of the rows that the next multiply() takes can be put beforehand,
  // as bits: a zero so far. Null: it is not asked for.
  Result<uint32_t*> place_of_largest(int64_t columns, cudaStream_t stream);
  // Products with the same rows x [tokens, columns].
  Result<void> multiply(const float* x, int64_t tokens, std::span<const Product> products,
                        bool knows_largest, cudaStream_t stream);

 private:
  struct HalfWeight {
    DeviceMemory memory;
    Halves halves;
  };
  Result<Halves> halves_of(const WeightView& weight, HalfWeight& scratch, cudaStream_t stream);
  Result<void> make_room_for_rows(int64_t count, cudaStream_t stream);
  bool goes_to_blas(int64_t columns);

  bool looked_for_blas_ = false;
  std::unique_ptr<Blas> blas_;         // null where the library is missing
  DeviceMemory rows_;                  // x as halves
  HalfWeight scratch_[kMostProducts];  // of weights that do not stay
  std::map<const uint8_t*, HalfWeight> resident_;
  DeviceMemory numbers_;  // two largest magnitudes that take turns, and a factor for each product
  int turn_ = 0;
};

}  // namespace lockstep::exec::cuda
