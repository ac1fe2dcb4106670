#include "doctor/decoding_parts.h"

namespace lockstep::doctor {
namespace {

using quant::high_nibble;
using quant::low_nibble;

// One scale for all 32 values.
Parts of_32(float d) {
  Parts out;
  out.values = out.group = 32;
  out.d = d;
  out.scales[0] = 1;
  return out;
}

Parts of_256(float d, int group) {
  Parts out;
  out.values = 256;
  out.group = group;
  out.d = d;
  return out;
}

void take_nibbles(const uint8_t* codes, Parts& out) {
  for (int i = 0; i < 16; ++i) {
    out.codes[i] = low_nibble(codes[i]);
    out.codes[i + 16] = high_nibble(codes[i]);
  }
}

// m is added: the min is -1 of it.
void take_min(uint16_t m, Parts& out) {
  out.d_min = half_to_float(m);
  out.mins[0] = -1;
}

void take_packed(const uint8_t* packed, uint16_t d_min, Parts& out) {
  out.d_min = half_to_float(d_min);
  for (int g = 0; g < 8; ++g) {
    out.scales[g] = quant::six_bit_scale(packed, g);
    out.mins[g] = quant::six_bit_min(packed, g);
  }
}

}  // namespace

Parts parts_of(const quant::BlockQ4_0& block) {
  Parts out = of_32(half_to_float(block.d));
  take_nibbles(block.codes, out);
  out.offset = 8;
  return out;
}

Parts parts_of(const quant::BlockQ4_1& block) {
  Parts out = of_32(half_to_float(block.d));
  take_nibbles(block.codes, out);
  take_min(block.m, out);
  return out;
}

Parts parts_of(const quant::BlockQ5_0& block) {
  Parts out = of_32(half_to_float(block.d));
  take_nibbles(block.codes, out);
  for (int i = 0; i < 32; ++i) out.codes[i] |= quant::fifth_bit(block.high, i);
  out.offset = 16;
  return out;
}

Parts parts_of(const quant::BlockQ5_1& block) {
  Parts out = of_32(half_to_float(block.d));
  take_nibbles(block.codes, out);
  for (int i = 0; i < 32; ++i) out.codes[i] |= quant::fifth_bit(block.high, i);
  take_min(block.m, out);
  return out;
}

Parts parts_of(const quant::BlockQ8_0& block) {
  Parts out = of_32(half_to_float(block.d));
  for (int i = 0; i < 32; ++i) out.codes[i] = block.codes[i];
  return out;
}

Parts parts_of(const quant::BlockIQ4_NL& block) {
  Parts out = of_32(half_to_float(block.d));
  take_nibbles(block.codes, out);
  out.levels = kIq4Levels;
  return out;
}

Parts parts_of(const quant::BlockMXFP4& block) {
  Parts out = of_32(quant::mxfp4_half_scale(block.exponent));
  take_nibbles(block.codes, out);
  out.levels = kMxfp4Levels;
  return out;
}

Parts parts_of(const quant::BlockQ2_K& block) {
  Parts out = of_256(half_to_float(block.d), 16);
  out.d_min = half_to_float(block.d_min);
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = low_nibble(block.scales[g]);
    out.mins[g] = high_nibble(block.scales[g]);
  }
  for (int i = 0; i < 256; ++i) out.codes[i] = quant::two_bits(block.codes, i);
  return out;
}

Parts parts_of(const quant::BlockQ3_K& block) {
  Parts out = of_256(half_to_float(block.d), 16);
  for (int g = 0; g < 16; ++g) out.scales[g] = quant::q3_k_scale(block, g);
  for (int i = 0; i < 256; ++i)
    out.codes[i] = quant::two_bits(block.codes, i) | ((block.high[i % 32] >> (i / 32)) & 1) << 2;
  out.offset = 4;
  return out;
}

Parts parts_of(const quant::BlockQ4_K& block) {
  Parts out = of_256(half_to_float(block.d), 32);
  take_packed(block.scales, block.d_min, out);
  for (int i = 0; i < 256; ++i)
    out.codes[i] = (block.codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4)) & 0xf;
  return out;
}

Parts parts_of(const quant::BlockQ5_K& block) {
  Parts out = of_256(half_to_float(block.d), 32);
  take_packed(block.scales, block.d_min, out);
  for (int i = 0; i < 256; ++i)
    out.codes[i] = ((block.codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4)) & 0xf) |
                   ((block.high[i % 32] >> (i / 32)) & 1) << 4;
  return out;
}

Parts parts_of(const quant::BlockQ6_K& block) {
  Parts out = of_256(half_to_float(block.d), 16);
  for (int g = 0; g < 16; ++g) out.scales[g] = block.scales[g];
  for (int i = 0; i < 256; ++i)
    out.codes[i] = ((block.low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4)) & 0xf) |
                   quant::two_bits(block.high, i) << 4;
  out.offset = 32;
  return out;
}

Parts parts_of(const quant::BlockIQ4_XS& block) {
  Parts out = of_256(half_to_float(block.d), 32);
  for (int g = 0; g < 8; ++g) {
    const int low = (block.scales_low[g / 2] >> (g % 2 * 4)) & 0xf;
    out.scales[g] = (low | ((block.scales_high >> (g * 2)) & 3) << 4) - 32;
  }
  for (int i = 0; i < 256; ++i)
    out.codes[i] = (block.codes[i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4)) & 0xf;
  out.levels = kIq4Levels;
  return out;
}

// The order of operations is that of quant/blocks.h.
void assemble(const Parts& parts, float* out) {
  for (int i = 0; i < parts.values; ++i) {
    const int g = i / parts.group;
    const float scale = parts.d * static_cast<float>(parts.scales[g]);
    const int code = parts.codes[i];
    const int level = parts.levels != nullptr ? parts.levels[code & 15] : code - parts.offset;
    const float min = parts.d_min * static_cast<float>(parts.mins[g]);
    out[i] = quant::mul_add(scale, static_cast<float>(level), -min);
  }
}

}  // namespace lockstep::doctor
