// Rows as halves, for the products of prompts.
#pragma once

#include "exec/cuda/calls.h"
#include "exec/cuda/prompts/halves.cuh"
#include "exec/cuda/shared/mma.cuh"

namespace lockstep::exec::cuda {
namespace {

// Rows become halves before the largest of them all is known. They are made for a largest from 2^-1
// to 2^11, as it mostly is; then what is cut off is less than 2^-28 of it.
constexpr float kUsualScale = 16;
__device__ inline float scale_of_rows(uint32_t largest) {
  const int exponent = static_cast<int>(largest >> 23) - 127;
  return exponent >= -1 && exponent < 11 ? kUsualScale : scale_for(largest);
}

// Four numbers of a row, from `column` on.
__device__ inline void put_halves(float4 f, float scale, const RowHalves& out, int64_t columns,
                                  int64_t row, int64_t column) {
  uint2 high, low;
  split(f.x * scale, f.y * scale, high.x, low.x);
  split(f.z * scale, f.w * scale, high.y, low.y);
  __half* to = static_cast<__half*>(out.to) + row * out.parts * columns + column;
  const auto put = [&](int part, uint2 four) {
    *reinterpret_cast<uint2*>(to + part * columns) = four;
  };
  if (out.parts == 1) return put(0, high);
  put(0, low);
  put(1, high);
  if (out.parts == 3) put(2, high);
}

}  // namespace
}  // namespace lockstep::exec::cuda
