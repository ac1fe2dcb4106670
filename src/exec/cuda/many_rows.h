// Products of weights with many rows, as in prompts: by the tensor cores where cuBLASLt is there.
#pragma once

#include <map>
#include <memory>

#include "exec/cuda/blas.h"
#include "exec/cuda/calls.h"
#include "exec/cuda/memory.h"

namespace lockstep::exec::cuda {

// Weights become halves, once and for all where memory allows and each time where it does not.
// Weights in floating point keep all their bits, and so do the rows that meet them, as two halves
// each; rows that meet quantized weights are rounded to one half.
class ManyRows {
 public:
  // The rows that the next products take.
  void set_rows(const float* x) {
    x_ = x;
    have_high_ = have_low_ = false;
  }
  Result<void> multiply(const WeightView& weight, const float* bias, float* out, int64_t tokens,
                        cudaStream_t stream);

 private:
  struct HalfWeight {
    DeviceMemory memory;
    Halves halves;
  };
  Result<Halves> halves_of(const WeightView& weight, cudaStream_t stream);
  Result<void> prepare_rows(int64_t count, bool low, cudaStream_t stream);

  bool looked_for_blas_ = false;
  std::unique_ptr<Blas> blas_;  // null where the library is missing
  const float* x_ = nullptr;
  bool have_high_ = false, have_low_ = false;
  HalfWeight rows_;     // x
  HalfWeight scratch_;  // of weights that do not stay
  std::map<const uint8_t*, HalfWeight> resident_;
  DeviceMemory alpha_;
};

}  // namespace lockstep::exec::cuda
