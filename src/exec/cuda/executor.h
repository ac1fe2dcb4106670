// The executor for NVIDIA GPUs. Weights, KV cache and activations live in the GPU's memory.
#pragma once

#include <memory>

#include "exec/registry.h"

namespace lockstep::exec::cuda {

// Why no program can run here (no GPU, no driver, a build without CUDA), or nothing.
Result<void> available();

// Of the GPU's memory.
Result<Bandwidth> read_bandwidth(int threads);

Result<std::unique_ptr<Executor>> create(const op::Program& program, const Options& options);

}  // namespace lockstep::exec::cuda
