// The divisors of rope frequencies that some files carry as tensors.
#pragma once

#include <vector>

#include "model/config.h"
#include "model/weights.h"

namespace lockstep::model {

// Llama 3.1's rope_freqs, or Phi-3's long or short factors by the context asked for. Empty where
// the file has none.
std::vector<float> rope_factors(const Config& config, int64_t context_length, Weights& weights);

}  // namespace lockstep::model
