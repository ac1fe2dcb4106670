// What a KV cache holds: halves, or numbers in single precision.
#pragma once

#include "exec/registry.h"

namespace lockstep::exec {

// What was asked for; else halves, but where no weight is quantized: the cache would be the
// coarsest part of such a model. Another type than f16 and f32 is an error.
Result<bool> has_half_cache(const op::Program& program, const Options& options);

}  // namespace lockstep::exec
