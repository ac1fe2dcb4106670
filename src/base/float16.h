// IEEE half precision and bfloat16, by bit arithmetic: the same results on every machine, CPU and
// CUDA alike. Storage types are plain uint16_t.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/host_device.h"

namespace lockstep {

LS_HD inline float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

LS_HD inline uint32_t bits_from_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Without branches, so that rows of halves are converted in wide registers.
LS_HD inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(half & 0x7fffu) << 13;
  const uint32_t exponent = shifted & 0x0f800000u;
  // Exponents are counted from another start; those of infinities and NaNs are the largest.
  const uint32_t normal = shifted + (112u << 23) + (exponent == 0x0f800000u ? 112u << 23 : 0u);
  // Subnormal: 2^-14 more than it is, exactly, and then that less.
  const float small = float_from_bits(shifted + (113u << 23)) - 6.103515625e-05f;
  const uint32_t is_small = 0u - static_cast<uint32_t>(exponent == 0);
  return float_from_bits(sign | (bits_from_float(small) & is_small) | (normal & ~is_small));
}

// Rounds to nearest, ties to even; too large becomes infinity; NaN stays NaN (quiet).
LS_HD inline uint16_t float_to_half(float value) {
  const uint32_t bits = bits_from_float(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65520
  if (magnitude < 0x38800000u) {
    // Subnormal half: adding 0.5 lines the bits up so that the FPU rounds at 2^-24.
    const float shifted = float_from_bits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (bits_from_float(shifted) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

LS_HD inline float bfloat_to_float(uint16_t bfloat) {
  return float_from_bits(static_cast<uint32_t>(bfloat) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN (quiet).
LS_HD inline uint16_t float_to_bfloat(float value) {
  const uint32_t bits = bits_from_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace lockstep
