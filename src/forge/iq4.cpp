// A plain encoder for the IQ4 formats: good enough for random weights, not for trained ones.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "forge/formats.h"
#include "quant/blocks.h"
#include "quant/encode.h"

namespace lockstep::forge {
namespace {

constexpr float kLargestLevel = 113;  // reached by both signs
constexpr int kGroup = 32;
constexpr int kHalfGroup = kGroup / 2;

float largest(const float* values) {
  float most = 0;
  for (int i = 0; i < kGroup; ++i) most = std::max(most, std::abs(values[i]));
  return most;
}

int nearest_code(float value) {
  int best = 0;
  for (int code = 1; code < 16; ++code)
    if (std::abs(quant::iq4_level(code) - value) < std::abs(quant::iq4_level(best) - value))
      best = code;
  return best;
}

// Value i in the low nibble of byte i, value i + 16 in its high nibble.
void pack(const float* values, float scale, uint8_t* codes) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  for (int i = 0; i < kHalfGroup; ++i)
    codes[i] = static_cast<uint8_t>(nearest_code(values[i] * inverse) |
                                    nearest_code(values[i + kHalfGroup] * inverse) << 4);
}

void encode_block(const float* values, quant::BlockIQ4_NL& block) {
  block.d = float_to_half(largest(values) / kLargestLevel);
  pack(values, half_to_float(block.d), block.codes);
}

void encode_block(const float* values, quant::BlockIQ4_XS& block) {
  constexpr int kGroups = 8;
  constexpr int kLargestScale = 31;
  float most = 0;
  for (int group = 0; group < kGroups; ++group)
    most = std::max(most, largest(values + group * kGroup));
  block = {};
  block.d = float_to_half(most / (kLargestLevel * kLargestScale));
  const float d = half_to_float(block.d);
  for (int group = 0; group < kGroups; ++group) {
    const float* source = values + group * kGroup;
    const float wanted = d != 0 ? largest(source) / (kLargestLevel * d) : 0;
    const int scale = std::clamp(static_cast<int>(std::ceil(wanted)), 1, kLargestScale);
    const int stored = scale + 32;
    block.scales_low[group / 2] |= static_cast<uint8_t>((stored & 0xf) << (group % 2 * 4));
    block.scales_high = static_cast<uint16_t>(block.scales_high | (stored >> 4) << (group * 2));
    pack(source, d * static_cast<float>(scale), block.codes + group * kHalfGroup);
  }
}

template <class Block>
void encode_blocks(const float* source, int64_t values, std::byte* out) {
  for (int64_t first = 0; first < values; first += Block::kValues) {
    Block block;
    encode_block(source + first, block);
    std::memcpy(out, &block, sizeof block);
    out += sizeof block;
  }
}

}  // namespace

void encode(quant::Format format, const float* source, int64_t values, std::byte* out) {
  if (quant::encodable(format)) return quant::encode(format, source, values, out);
  if (format == quant::Format::kIQ4_NL)
    return encode_blocks<quant::BlockIQ4_NL>(source, values, out);
  LS_CHECK(format == quant::Format::kIQ4_XS, "nothing encodes {}", quant::info(format).name);
  encode_blocks<quant::BlockIQ4_XS>(source, values, out);
}

}  // namespace lockstep::forge
