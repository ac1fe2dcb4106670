#include "exec/row_codes.h"

#include <cstring>

#include "quant/blocks.h"

namespace lockstep::exec {
namespace {

using namespace quant;

void read_nibbles(const uint8_t* packed, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = packed[i] & 15;
    codes[i + 16] = packed[i] >> 4;
  }
}

void add_fifth_bits(const uint8_t* high, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>(fifth_bit(high, i));
}

void read_two_bits(const uint8_t* packed, int shift, uint8_t* codes) {
  for (int half = 0; half < 2; ++half)
    for (int quarter = 0; quarter < 4; ++quarter)
      for (int i = 0; i < 32; ++i)
        codes[half * 128 + quarter * 32 + i] |=
            static_cast<uint8_t>(((packed[half * 32 + i] >> (2 * quarter)) & 3) << shift);
}

// Small blocks: number `unit` of the row block.
void read(const BlockQ4_0& block, int unit, RowCodes& out) {
  read_nibbles(block.codes, out.codes + unit * 32);
  out.halves[unit] = block.d;
}
void read(const BlockQ4_1& block, int unit, RowCodes& out) {
  read_nibbles(block.codes, out.codes + unit * 32);
  out.halves[unit] = block.d;
  out.half_mins[unit] = block.m;
}
void read(const BlockQ5_0& block, int unit, RowCodes& out) {
  read_nibbles(block.codes, out.codes + unit * 32);
  add_fifth_bits(block.high, out.codes + unit * 32);
  out.halves[unit] = block.d;
}
void read(const BlockQ5_1& block, int unit, RowCodes& out) {
  read_nibbles(block.codes, out.codes + unit * 32);
  add_fifth_bits(block.high, out.codes + unit * 32);
  out.halves[unit] = block.d;
  out.half_mins[unit] = block.m;
}
void read(const BlockQ8_0& block, int unit, RowCodes& out) {
  std::memcpy(out.codes + unit * 32, block.codes, 32);
  out.halves[unit] = block.d;
}
void read(const BlockIQ4_NL& block, int unit, RowCodes& out) {
  read_nibbles(block.codes, out.codes + unit * 32);
  out.halves[unit] = block.d;
}
void read(const BlockMXFP4& block, int unit, RowCodes& out) {
  read_nibbles(block.codes, out.codes + unit * 32);
  out.scales[unit] = block.exponent;
}

// Blocks of 256.
void read(const BlockQ2_K& block, int, RowCodes& out) {
  std::memset(out.codes, 0, sizeof out.codes);
  read_two_bits(block.codes, 0, out.codes);
  std::memcpy(out.scales, block.scales, sizeof block.scales);
  out.d = block.d;
  out.d_min = block.d_min;
}
void read(const BlockQ3_K& block, int, RowCodes& out) {
  for (int i = 0; i < 256; ++i)
    out.codes[i] = static_cast<uint8_t>(((block.high[i % 32] >> (i / 32)) & 1) << 2);
  read_two_bits(block.codes, 0, out.codes);
  for (int g = 0; g < 16; ++g) out.scales[g] = static_cast<uint8_t>(q3_k_scale(block, g));
  out.d = block.d;
}
template <class Block>
void read_six_bit_scales(const Block& block, RowCodes& out) {
  for (int g = 0; g < 8; ++g) {
    out.scales[g] = static_cast<uint8_t>(six_bit_scale(block.scales, g));
    out.mins[g] = static_cast<uint8_t>(six_bit_min(block.scales, g));
  }
  out.d = block.d;
  out.d_min = block.d_min;
  for (int pair = 0; pair < 4; ++pair)
    for (int i = 0; i < 32; ++i) {
      out.codes[pair * 64 + i] = block.codes[pair * 32 + i] & 15;
      out.codes[pair * 64 + 32 + i] = block.codes[pair * 32 + i] >> 4;
    }
}
void read(const BlockQ4_K& block, int, RowCodes& out) {
  read_six_bit_scales(block, out);
}
void read(const BlockQ5_K& block, int, RowCodes& out) {
  read_six_bit_scales(block, out);
  for (int g = 0; g < 8; ++g)
    for (int i = 0; i < 32; ++i)
      out.codes[g * 32 + i] |= static_cast<uint8_t>(((block.high[i] >> g) & 1) << 4);
}
void read(const BlockQ6_K& block, int, RowCodes& out) {
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 64; ++i) {
      out.codes[half * 128 + i] = block.low[half * 64 + i] & 15;
      out.codes[half * 128 + 64 + i] = block.low[half * 64 + i] >> 4;
    }
  read_two_bits(block.high, 4, out.codes);
  std::memcpy(out.scales, block.scales, sizeof block.scales);
  out.d = block.d;
}
void read(const BlockIQ4_XS& block, int, RowCodes& out) {
  for (int g = 0; g < 8; ++g) {
    read_nibbles(block.codes + g * 16, out.codes + g * 32);
    const int low = (block.scales_low[g / 2] >> (g % 2 * 4)) & 15;
    const int high = (block.scales_high >> (g * 2)) & 3;
    out.scales[g] = static_cast<uint8_t>((low | high << 4) - 32);
  }
  out.d = block.d;
}

template <class Block>
void read_blocks(const std::byte* source, int64_t columns, RowCodes& out) {
  if constexpr (requires(Block block) { read(block, 0, out); }) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(Block));
    for (int64_t i = 0; i < columns / Block::kValues; ++i) {
      Block block;
      std::memcpy(&block, source + i * kBytes, sizeof block);
      read(block, static_cast<int>(i), out);
    }
  } else {
    not_decodable(Block::kFormat);  // floating point has no codes
  }
}

}  // namespace

void read_codes(const op::Weight& weight, int64_t row, int64_t first, int64_t columns,
                RowCodes& out) {
  visit_format(weight.format->format(), [&](auto block) {
    using Block = decltype(block);
    const std::byte* source =
        weight.row(row) + first / Block::kValues * static_cast<int64_t>(sizeof(Block));
    read_blocks<Block>(source, columns, out);
  });
}

}  // namespace lockstep::exec
