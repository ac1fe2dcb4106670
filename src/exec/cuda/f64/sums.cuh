// The operations of exec/reference/sums.h on the device. The intrinsics are never fused.
#pragma once

#include "exec/f64/kernels/kernels.h"

namespace lockstep::exec::cuda {
namespace {

__device__ inline void add_exactly(double term, double& sum, double& lost) {
  const double next = __dadd_rn(sum, term);
  const double part = __dsub_rn(next, sum);
  lost = __dadd_rn(lost, __dadd_rn(__dsub_rn(sum, __dsub_rn(next, part)), __dsub_rn(term, part)));
  sum = next;
}

__device__ inline double with_lost(double sum, double lost) {
  const double total = __dadd_rn(sum, lost);
  return isnan(total) ? sum : total;
}

// Over eight neighbouring threads, in the order of across().
__device__ inline double across_lanes(double value) {
#pragma unroll
  for (int step = 1; step < f64::kLanes; step *= 2)
    value = __dadd_rn(value, __shfl_xor_sync(~0u, value, step));
  return value;
}

}  // namespace
}  // namespace lockstep::exec::cuda
