// Formats of 256 values a block ("K" formats and IQ4_XS), cut into groups of 16 or 32 values with
// whole-number scales of their own: layout and decoding. blocks.h tells how they are used.
#pragma once

#include <cstdint>

#include "base/float16.h"
#include "base/host_device.h"
#include "quant/format.h"
#include "quant/small_blocks.h"

namespace lockstep::quant {

// Two-bit codes: each half of the block (128 values) has 32 bytes; byte j holds the codes of values
// j, j + 32, j + 64 and j + 96 of its half, lowest bits first.
LS_HD inline int two_bits(const uint8_t* codes, int i) {
  return (codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
}

// 16 groups of 16: d * scale * q - d_min * min. A group's scale is the low nibble, its min the
// high.
struct BlockQ2_K {
  static constexpr Format kFormat = Format::kQ2_K;
  static constexpr int kValues = 256;
  uint8_t scales[16];
  uint8_t codes[64];
  uint16_t d;
  uint16_t d_min;
};
static_assert(sizeof(BlockQ2_K) == 84);

LS_HD inline void decode(const BlockQ2_K& block, float* out) {
  const float d = half_to_float(block.d);
  const float d_min = half_to_float(block.d_min);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(low_nibble(block.scales[group]));
    const float min = d_min * static_cast<float>(high_nibble(block.scales[group]));
    const uint8_t* codes = block.codes + group / 8 * 32 + group % 2 * 16;
    for (int i = 0; i < 16; ++i) {
      const int code = (codes[i] >> (group % 8 / 2 * 2)) & 3;
      out[group * 16 + i] = mul_add(scale, static_cast<float>(code), -min);
    }
  }
}

// 16 groups of 16: d * (scale - 32) * (q - 4), the third bit of q in `high`: bit b of byte j is
// that of value 32 b + j. Scales have six bits: four in scales[0..7] (groups 0-7 low nibbles, 8-15
// high), the upper two in scales[8..11] (group g: byte g % 4, bits 2 (g / 4)).
struct BlockQ3_K {
  static constexpr Format kFormat = Format::kQ3_K;
  static constexpr int kValues = 256;
  uint8_t high[32];
  uint8_t codes[64];
  uint8_t scales[12];
  uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

LS_HD inline int q3_k_scale(const BlockQ3_K& block, int group) {
  const int low = (block.scales[group % 8] >> (group / 8 * 4)) & 0xf;
  const int high = (block.scales[8 + group % 4] >> (group / 4 * 2)) & 3;
  return (low | high << 4) - 32;
}

LS_HD inline void decode(const BlockQ3_K& block, float* out) {
  const float d = half_to_float(block.d);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(q3_k_scale(block, group));
    const uint8_t* codes = block.codes + group / 8 * 32 + group % 2 * 16;
    const uint8_t* high = block.high + group % 2 * 16;
    for (int i = 0; i < 16; ++i) {
      const int low = (codes[i] >> (group % 8 / 2 * 2)) & 3;
      out[group * 16 + i] =
          scale * static_cast<float>((low | ((high[i] >> (group / 2)) & 1) << 2) - 4);
    }
  }
}

// Scales and mins of Q4_K and Q5_K, six bits each, of eight groups in twelve bytes: groups 0-3 have
// scales in the low six bits of bytes 0-3 and mins in those of bytes 4-7; groups 4-7 have the low
// four bits of both in bytes 8-11 and the upper two in the top bits of bytes 0-3 and 4-7.
LS_HD inline int six_bit_scale(const uint8_t* packed, int group) {
  if (group < 4) return packed[group] & 63;
  return low_nibble(packed[group + 4]) | (packed[group - 4] >> 6) << 4;
}

LS_HD inline int six_bit_min(const uint8_t* packed, int group) {
  if (group < 4) return packed[group + 4] & 63;
  return high_nibble(packed[group + 4]) | (packed[group] >> 6) << 4;
}

// 8 groups of 32: d * scale * q - d_min * min. Each pair of groups has 32 bytes of codes: low
// nibbles for the first, high nibbles for the second.
struct BlockQ4_K {
  static constexpr Format kFormat = Format::kQ4_K;
  static constexpr int kValues = 256;
  uint16_t d;
  uint16_t d_min;
  uint8_t scales[12];
  uint8_t codes[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

LS_HD inline void decode(const BlockQ4_K& block, float* out) {
  const float d = half_to_float(block.d);
  const float d_min = half_to_float(block.d_min);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(six_bit_scale(block.scales, group));
    const float min = d_min * static_cast<float>(six_bit_min(block.scales, group));
    const uint8_t* codes = block.codes + group / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int code = (codes[i] >> (group % 2 * 4)) & 0xf;
      out[group * 32 + i] = mul_add(scale, static_cast<float>(code), -min);
    }
  }
}

// As Q4_K, with the fifth bit of group g's value j in bit g of high[j].
struct BlockQ5_K {
  static constexpr Format kFormat = Format::kQ5_K;
  static constexpr int kValues = 256;
  uint16_t d;
  uint16_t d_min;
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t codes[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

LS_HD inline void decode(const BlockQ5_K& block, float* out) {
  const float d = half_to_float(block.d);
  const float d_min = half_to_float(block.d_min);
  for (int group = 0; group < 8; ++group) {
    const float scale = d * static_cast<float>(six_bit_scale(block.scales, group));
    const float min = d_min * static_cast<float>(six_bit_min(block.scales, group));
    const uint8_t* codes = block.codes + group / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int low = (codes[i] >> (group % 2 * 4)) & 0xf;
      const int high = (block.high[i] >> group) & 1;
      out[group * 32 + i] = mul_add(scale, static_cast<float>(low | high << 4), -min);
    }
  }
}

// 16 groups of 16: d * scale * (q - 32). The lower four bits of q: each half of the block has 64
// bytes, low nibbles for its first 64 values, high nibbles for the rest. The upper two: as
// two_bits.
struct BlockQ6_K {
  static constexpr Format kFormat = Format::kQ6_K;
  static constexpr int kValues = 256;
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

// Each half of a block has 64 bytes of low bits and 32 of high bits: 32 values at a time lie in the
// same bits of consecutive bytes, which compilers turn into wide registers.
LS_HD inline void decode(const BlockQ6_K& block, float* out) {
  const float d = half_to_float(block.d);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(block.scales[group]);
    const int half = group / 8;
    const int quarter = group % 8 / 2;
    const uint8_t* low = block.low + half * 64 + quarter % 2 * 32 + group % 2 * 16;
    const uint8_t* high = block.high + half * 32 + group % 2 * 16;
    const int low_shift = quarter / 2 * 4;
    const int high_shift = quarter * 2;
    for (int i = 0; i < 16; ++i) {
      const int code = ((low[i] >> low_shift) & 0xf) | (((high[i] >> high_shift) & 3) << 4);
      out[group * 16 + i] = scale * static_cast<float>(code - 32);
    }
  }
}

// 8 groups of 32: d * (scale - 32) * level[q], levels as in IQ4_NL. A group's scale: low four bits
// in a nibble of scales_low, upper two in scales_high; its 16 bytes of codes as in IQ4_NL.
struct BlockIQ4_XS {
  static constexpr Format kFormat = Format::kIQ4_XS;
  static constexpr int kValues = 256;
  uint16_t d;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t codes[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

LS_HD inline void decode(const BlockIQ4_XS& block, float* out) {
  const float d = half_to_float(block.d);
  for (int group = 0; group < 8; ++group) {
    const int low = (block.scales_low[group / 2] >> (group % 2 * 4)) & 0xf;
    const int high = (block.scales_high >> (group * 2)) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const uint8_t* codes = block.codes + group * 16;
    for (int i = 0; i < 16; ++i) {
      out[group * 32 + i] = scale * iq4_level(low_nibble(codes[i]));
      out[group * 32 + i + 16] = scale * iq4_level(high_nibble(codes[i]));
    }
  }
}

}  // namespace lockstep::quant
