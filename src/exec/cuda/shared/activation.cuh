// The functions of Activate.
#pragma once

#include "exec/cuda/calls.h"

namespace lockstep::exec::cuda {
namespace {

__device__ inline float activate(RowTask::Kind kind, float x) {
  if (kind == RowTask::Kind::kSilu) return x / (1.0f + expf(-x));
  if (kind == RowTask::Kind::kClampedSwish) {
    // Not fminf, which drops a NaN.
    const float bounded = x > 7.0f ? 7.0f : x;
    return bounded / (1.0f + expf(-1.702f * bounded));
  }
  const double v = x;
  if (kind == RowTask::Kind::kGeluErf)
    return static_cast<float>(0.5 * v * (1 + erf(v * 0.70710678118654752440)));
  return static_cast<float>(0.5 * v *
                            (1 + tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v))));
}

// What the result of the function is multiplied by.
__device__ inline float factor_of_gate(RowTask::Kind kind, float y) {
  if (kind != RowTask::Kind::kClampedSwish) return y;
  return 1.0f + (y > 7.0f ? 7.0f : y < -7.0f ? -7.0f : y);
}

}  // namespace
}  // namespace lockstep::exec::cuda
