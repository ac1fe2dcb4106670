// Formats of one value or 32 values a block: layout and decoding. blocks.h tells how they are used.
#pragma once

#include <cstdint>

#include "base/float16.h"
#include "base/host_device.h"
#include "quant/format.h"

namespace lockstep::quant {

// a * b + c with both roundings, whatever the compiler's contraction setting (nvcc's default
// fuses).
LS_HD inline float mul_add(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(a, b), c);
#else
  return a * b + c;
#endif
}

LS_HD inline int low_nibble(uint8_t byte) {
  return byte & 0xf;
}
LS_HD inline int high_nibble(uint8_t byte) {
  return byte >> 4;
}

struct BlockF32 {
  static constexpr Format kFormat = Format::kF32;
  static constexpr int kValues = 1;
  float value;
};
static_assert(sizeof(BlockF32) == 4);

LS_HD inline void decode(const BlockF32& block, float* out) {
  *out = block.value;
}

struct BlockF16 {
  static constexpr Format kFormat = Format::kF16;
  static constexpr int kValues = 1;
  uint16_t bits;
};
static_assert(sizeof(BlockF16) == 2);

LS_HD inline void decode(const BlockF16& block, float* out) {
  *out = half_to_float(block.bits);
}

struct BlockBF16 {
  static constexpr Format kFormat = Format::kBF16;
  static constexpr int kValues = 1;
  uint16_t bits;
};
static_assert(sizeof(BlockBF16) == 2);

LS_HD inline void decode(const BlockBF16& block, float* out) {
  *out = bfloat_to_float(block.bits);
}

// Formats of 32 values. Four-bit codes: value i is in the low nibble of codes[i], value i + 16 in
// its high nibble. Scales (d) and offsets (m) are halves.

// d * (q - 8)
struct BlockQ4_0 {
  static constexpr Format kFormat = Format::kQ4_0;
  static constexpr int kValues = 32;
  uint16_t d;
  uint8_t codes[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

LS_HD inline void decode(const BlockQ4_0& block, float* out) {
  const float d = half_to_float(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(low_nibble(block.codes[i]) - 8);
    out[i + 16] = d * static_cast<float>(high_nibble(block.codes[i]) - 8);
  }
}

// d * q + m
struct BlockQ4_1 {
  static constexpr Format kFormat = Format::kQ4_1;
  static constexpr int kValues = 32;
  uint16_t d;
  uint16_t m;
  uint8_t codes[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

LS_HD inline void decode(const BlockQ4_1& block, float* out) {
  const float d = half_to_float(block.d);
  const float m = half_to_float(block.m);
  for (int i = 0; i < 16; ++i) {
    out[i] = mul_add(d, static_cast<float>(low_nibble(block.codes[i])), m);
    out[i + 16] = mul_add(d, static_cast<float>(high_nibble(block.codes[i])), m);
  }
}

// d * (q - 16); bit i of `high` (little-endian) is the fifth bit of value i.
struct BlockQ5_0 {
  static constexpr Format kFormat = Format::kQ5_0;
  static constexpr int kValues = 32;
  uint16_t d;
  uint8_t high[4];
  uint8_t codes[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

LS_HD inline int fifth_bit(const uint8_t* high, int i) {
  return ((high[i / 8] >> (i % 8)) & 1) << 4;
}

// The codes of a block, by a comparison with one bit each: wide registers have that where they have
// no shifts of different lengths.
LS_HD inline void five_bit_codes(const uint8_t* codes, const uint8_t* high, uint8_t* out) {
  constexpr uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  uint8_t bytes[32];
  for (int i = 0; i < 32; ++i) bytes[i] = high[i / 8];
  for (int i = 0; i < 16; ++i) {
    const int low = (bytes[i] & kBits[i]) != 0 ? 16 : 0;
    const int upper = (bytes[i + 16] & kBits[i]) != 0 ? 16 : 0;
    out[i] = static_cast<uint8_t>((codes[i] & 0xf) | low);
    out[i + 16] = static_cast<uint8_t>((codes[i] >> 4) | upper);
  }
}

LS_HD inline void decode(const BlockQ5_0& block, float* out) {
  const float d = half_to_float(block.d);
  uint8_t codes[32];
  five_bit_codes(block.codes, block.high, codes);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(codes[i] - 16);
}

// d * q + m
struct BlockQ5_1 {
  static constexpr Format kFormat = Format::kQ5_1;
  static constexpr int kValues = 32;
  uint16_t d;
  uint16_t m;
  uint8_t high[4];
  uint8_t codes[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

LS_HD inline void decode(const BlockQ5_1& block, float* out) {
  const float d = half_to_float(block.d);
  const float m = half_to_float(block.m);
  for (int i = 0; i < 16; ++i) {
    const int low = low_nibble(block.codes[i]) | fifth_bit(block.high, i);
    const int high = high_nibble(block.codes[i]) | fifth_bit(block.high, i + 16);
    out[i] = mul_add(d, static_cast<float>(low), m);
    out[i + 16] = mul_add(d, static_cast<float>(high), m);
  }
}

// d * q
struct BlockQ8_0 {
  static constexpr Format kFormat = Format::kQ8_0;
  static constexpr int kValues = 32;
  uint16_t d;
  int8_t codes[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

LS_HD inline void decode(const BlockQ8_0& block, float* out) {
  const float d = half_to_float(block.d);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(block.codes[i]) * d;
}

// d * level[q]: levels spaced for bell-shaped values.
struct BlockIQ4_NL {
  static constexpr Format kFormat = Format::kIQ4_NL;
  static constexpr int kValues = 32;
  uint16_t d;
  uint8_t codes[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

LS_HD inline float iq4_level(int code) {
  // Local, so that device code has it too.
  constexpr int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
  return static_cast<float>(kLevels[code]);
}

LS_HD inline void decode(const BlockIQ4_NL& block, float* out) {
  const float d = half_to_float(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * iq4_level(low_nibble(block.codes[i]));
    out[i + 16] = d * iq4_level(high_nibble(block.codes[i]));
  }
}

// The OCP microscaling format: 2^(exponent - 127) times a 4-bit float (sign, 2 exponent, 1
// fraction).
struct BlockMXFP4 {
  static constexpr Format kFormat = Format::kMXFP4;
  static constexpr int kValues = 32;
  uint8_t exponent;
  uint8_t codes[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

// Twice the 4-bit float, so that it is whole. Code 8 (minus zero) is plain zero.
LS_HD inline float mxfp4_level(int code) {
  constexpr int8_t kLevels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  return static_cast<float>(kLevels[code]);
}

// Half the block's scale, 2^(exponent - 128), subnormal for the two smallest exponents.
LS_HD inline float mxfp4_half_scale(int exponent) {
  const uint32_t bits =
      exponent < 2 ? 0x00200000u << exponent : static_cast<uint32_t>(exponent - 1) << 23;
  return float_from_bits(bits);
}

LS_HD inline void decode(const BlockMXFP4& block, float* out) {
  const float d = mxfp4_half_scale(block.exponent);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * mxfp4_level(low_nibble(block.codes[i]));
    out[i + 16] = d * mxfp4_level(high_nibble(block.codes[i]));
  }
}

}  // namespace lockstep::quant
