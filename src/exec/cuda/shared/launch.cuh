// Launching kernels so that one starts while the one before it ends (programmatic dependent
// launch, from compute capability 9.0 on): a kernel may read weights at once, and what other
// kernels write only after wait_for_inputs().
#pragma once

#include <cuda_runtime_api.h>

#include "exec/cuda/kernels.h"

namespace lockstep::exec::cuda {
namespace {

// To be called by every thread, once: lets the next kernel start, then waits until the one before
// has ended and what it wrote can be seen.
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ inline void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <class Call>
void launch(void (*kernel)(Call), dim3 grid, int threads, size_t shared, cudaStream_t stream,
            const Call& call) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  // Without wait_for_inputs() nothing keeps a kernel from reading too early.
  config.attrs = &attribute;
  config.numAttrs = made_for_hopper() ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, call);
}

}  // namespace
}  // namespace lockstep::exec::cuda
