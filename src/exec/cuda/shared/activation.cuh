// The functions of Activate.
#pragma once

#include "exec/cuda/calls.h"

namespace lockstep::exec::cuda {
namespace {

__device__ inline float activate(RowTask::Kind kind, float x) {
  if (kind == RowTask::Kind::kSilu) return x / (1.0f + expf(-x));
  const double v = x;
  if (kind == RowTask::Kind::kGeluErf)
    return static_cast<float>(0.5 * v * (1 + erf(v * 0.70710678118654752440)));
  return static_cast<float>(0.5 * v *
                            (1 + tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v))));
}

}  // namespace
}  // namespace lockstep::exec::cuda
