// The tensors of a model that does not exist yet: the forward pass is asked what it would use, so
// that a new architecture can be forged as soon as it has its row.
#pragma once

#include <vector>

#include "base/result.h"
#include "forge/spec.h"
#include "gguf/writer.h"
#include "model/config.h"

namespace lockstep::forge {

struct Plan {
  model::Config config;
  std::vector<gguf::Entry> metadata;
  std::vector<gguf::TensorPlan> tensors;  // in the order of their use

  int64_t parameters() const;  // rope factors, which are no weights, left out
  int64_t data_bytes() const;  // of all tensors, padding left out
};

// Everything that is wrong with the spec is said here, before anything is written.
Result<Plan> plan_model(const Spec& spec);

}  // namespace lockstep::forge
