// What the kernels of attention share.
#pragma once

#include <cuda_fp16.h>

#include "exec/cuda/calls.h"

namespace lockstep::exec::cuda {
namespace {

__device__ inline float number(float value) {
  return value;
}
__device__ inline float number(__half value) {
  return __half2float(value);
}

struct Range {
  int64_t begin, end;  // positions that a token sees
};
__device__ inline Range seen_by(const AttentionCall& call, int64_t position) {
  const int64_t end = position + 1;
  return {call.window > 0 && end > call.window ? end - call.window : 0, end};
}

__device__ inline float finish_score(const AttentionCall& call, float sum) {
  sum *= call.scale;
  return call.soft_cap > 0 ? call.soft_cap * tanhf(sum / call.soft_cap) : sum;
}

}  // namespace
}  // namespace lockstep::exec::cuda
