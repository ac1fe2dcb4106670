// Runs programs by evaluating their ops one after another in double precision: on the GPU, where
// there is one with room for the weights and the model is worth its start, or on the CPU.
#pragma once

#include <memory>

#include "exec/executor.h"
#include "exec/registry.h"

namespace lockstep::exec::reference {

Result<std::unique_ptr<Executor>> create(const op::Program& program, const Options& options);
Result<std::unique_ptr<Executor>> create_on_cpu(const op::Program& program, const Options& options);

}  // namespace lockstep::exec::reference
