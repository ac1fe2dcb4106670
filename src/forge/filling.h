// What the numbers of a forged tensor are like.
#pragma once

#include <string_view>
#include <vector>

#include "forge/spec.h"
#include "gguf/writer.h"
#include "model/config.h"

namespace lockstep::forge {

struct Filling {
  double mean = 0;
  double deviation = 0;
  std::vector<float> fixed{};  // these numbers, where there are any, and no random ones
};

// Chosen by the tensor's name so that values stay of the order of 1 through all layers, attention
// is neither flat nor one-hot, and logits spread as a trained model's do.
Filling filling_of(const gguf::TensorPlan& tensor, const Spec& spec, const model::Config& config);

}  // namespace lockstep::forge
