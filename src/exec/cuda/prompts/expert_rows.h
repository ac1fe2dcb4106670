// Products of many rows with the experts that they chose, as in prompts: on the tensor cores, each
// expert with all its rows.
#pragma once

#include <map>
#include <span>

#include "exec/cuda/calls.h"
#include "exec/cuda/shared/memory.h"
#include "op/program.h"

namespace lockstep::exec::cuda {

// Numbers are rounded as in ManyRows. Weights are decoded as they are multiplied: there are no
// copies of them, and only experts that were chosen are read.
class ExpertRows {
 public:
  struct Product {
    WeightView weight;            // of all experts
    const float* bias = nullptr;  // [experts, rows of one]; may be null
    float* out = nullptr;         // [tokens, used, rows of one]
  };
  struct Inputs {
    const float* x = nullptr;  // [tokens, columns], or [tokens, used, columns]
    bool own = false;          // the second
    op::ValueId choice = 0;
    const float* chosen = nullptr;  // [tokens, used]
    int64_t tokens = 0, used = 0, experts = 0;
  };
  // To be called first in a step: one that was cancelled may have left a largest magnitude.
  Result<void> begin(cudaStream_t stream);
  // Whether such a product can be had.
  bool takes(const WeightView& weight);
  // Products with the same inputs.
  Result<void> multiply(const Inputs& inputs, std::span<const Product> products,
                        cudaStream_t stream);

 private:
  Result<void> group(const Inputs& inputs, cudaStream_t stream);
  Result<const uint32_t*> largest_of(const WeightView& weight, cudaStream_t stream);

  std::map<quant::Format, bool> takes_;
  std::map<const uint8_t*, DeviceMemory> largest_;  // magnitude of a weight
  op::ValueId grouped_ = -1;                        // the choice that groups_ are of
  ExpertGroups groups_;
  DeviceMemory group_memory_;
  DeviceMemory rows_;     // x as halves
  DeviceMemory numbers_;  // two largest magnitudes that take turns, and a factor for each product
  int turn_ = 0;
};

}  // namespace lockstep::exec::cuda
