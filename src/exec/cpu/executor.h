// Runs programs on the CPU in single precision, with 16-bit activations where weights are
// quantized. Results have the same bits for any number of threads, any cut of the prompt into
// steps, every kind of machine, and with or without an observer.
#pragma once

#include <memory>

#include "exec/executor.h"
#include "exec/registry.h"

namespace lockstep::exec::cpu {

Result<std::unique_ptr<Executor>> create(const op::Program& program, const Options& options);

}  // namespace lockstep::exec::cpu
