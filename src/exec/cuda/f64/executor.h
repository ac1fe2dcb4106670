// The reference executor on the GPU: every op in double precision, from the exact weights.
#pragma once

#include <memory>

#include "exec/registry.h"

namespace lockstep::exec::cuda {

// An error where there is no GPU, or no room for weights and cache.
Result<std::unique_ptr<Executor>> create_reference(const op::Program& program);

}  // namespace lockstep::exec::cuda
