// Numbers on their way to halves: what they are multiplied by.
#pragma once

#include <cstdint>

namespace lockstep::exec::cuda {
namespace {

// The power of two that brings the largest magnitude just below 2^15, a half's limit with room.
__device__ inline float scale_for(uint32_t largest) {
  const int exponent = static_cast<int>(largest >> 23) - 127;  // of zero: far below
  if (exponent >= 128) return 1;                               // not finite: nothing to save
  const int shift = max(-126, min(127, 14 - exponent));
  return __uint_as_float(static_cast<uint32_t>(shift + 127) << 23);
}

}  // namespace
}  // namespace lockstep::exec::cuda
