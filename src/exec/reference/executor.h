// Runs programs by evaluating their ops one after another in double precision.
#pragma once

#include <memory>

#include "exec/executor.h"
#include "exec/registry.h"

namespace lockstep::exec::reference {

Result<std::unique_ptr<Executor>> create(const op::Program& program, const Options& options);

}  // namespace lockstep::exec::reference
