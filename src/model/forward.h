// The one forward pass: an architecture and a file become a Program.
#pragma once

#include "model/config.h"
#include "model/weights.h"
#include "op/program.h"

namespace lockstep::model {

// `context_length` decides the size of the KV cache and, for some models, the rope factors.
op::Program forward_pass(const Config& config, int64_t context_length, Weights& weights);

}  // namespace lockstep::model
