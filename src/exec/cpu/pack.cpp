#include "exec/cpu/pack.h"

#include <algorithm>
#include <cstring>

#include "exec/cpu/kernels/panel_format.h"
#include "quant/blocks.h"

namespace lockstep::exec::cpu {
namespace {

using namespace quant;

// What one block of a row gives to its panel: codes, and scales as the panel's format wants them.
struct RowBlock {
  uint8_t codes[kBlock];
  uint16_t d = 0, d_min = 0;  // of the block, or of each small block below
  uint8_t scales[kBlock / 16] = {}, mins[kBlock / 16] = {};
  uint16_t halves[kBlock / kUnit] = {}, half_mins[kBlock / kUnit] = {};
};

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
void read(const BlockQ4_0& block, int unit, RowBlock& out) {
  read_nibbles(block.codes, out.codes + unit * kUnit);
  out.halves[unit] = block.d;
}
void read(const BlockQ4_1& block, int unit, RowBlock& out) {
  read_nibbles(block.codes, out.codes + unit * kUnit);
  out.halves[unit] = block.d;
  out.half_mins[unit] = block.m;
}
void read(const BlockQ5_0& block, int unit, RowBlock& out) {
  read_nibbles(block.codes, out.codes + unit * kUnit);
  add_fifth_bits(block.high, out.codes + unit * kUnit);
  out.halves[unit] = block.d;
}
void read(const BlockQ5_1& block, int unit, RowBlock& out) {
  read_nibbles(block.codes, out.codes + unit * kUnit);
  add_fifth_bits(block.high, out.codes + unit * kUnit);
  out.halves[unit] = block.d;
  out.half_mins[unit] = block.m;
}
void read(const BlockQ8_0& block, int unit, RowBlock& out) {
  std::memcpy(out.codes + unit * kUnit, block.codes, 32);
  out.halves[unit] = block.d;
}
void read(const BlockIQ4_NL& block, int unit, RowBlock& out) {
  read_nibbles(block.codes, out.codes + unit * kUnit);
  out.halves[unit] = block.d;
}
void read(const BlockMXFP4& block, int unit, RowBlock& out) {
  read_nibbles(block.codes, out.codes + unit * kUnit);
  out.scales[unit] = block.exponent;
}

// Blocks of 256.
void read(const BlockQ2_K& block, int, RowBlock& out) {
  std::memset(out.codes, 0, sizeof out.codes);
  read_two_bits(block.codes, 0, out.codes);
  std::memcpy(out.scales, block.scales, sizeof block.scales);
  out.d = block.d;
  out.d_min = block.d_min;
}
void read(const BlockQ3_K& block, int, RowBlock& out) {
  for (int i = 0; i < 256; ++i)
    out.codes[i] = static_cast<uint8_t>(((block.high[i % 32] >> (i / 32)) & 1) << 2);
  read_two_bits(block.codes, 0, out.codes);
  for (int g = 0; g < 16; ++g) out.scales[g] = static_cast<uint8_t>(q3_k_scale(block, g));
  out.d = block.d;
}
template <class Block>
void read_six_bit_scales(const Block& block, RowBlock& out) {
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
void read(const BlockQ4_K& block, int, RowBlock& out) {
  read_six_bit_scales(block, out);
}
void read(const BlockQ5_K& block, int, RowBlock& out) {
  read_six_bit_scales(block, out);
  for (int g = 0; g < 8; ++g)
    for (int i = 0; i < 32; ++i)
      out.codes[g * 32 + i] |= static_cast<uint8_t>(((block.high[i] >> g) & 1) << 4);
}
void read(const BlockQ6_K& block, int, RowBlock& out) {
  for (int half = 0; half < 2; ++half)
    for (int i = 0; i < 64; ++i) {
      out.codes[half * 128 + i] = block.low[half * 64 + i] & 15;
      out.codes[half * 128 + 64 + i] = block.low[half * 64 + i] >> 4;
    }
  read_two_bits(block.high, 4, out.codes);
  std::memcpy(out.scales, block.scales, sizeof block.scales);
  out.d = block.d;
}
void read(const BlockIQ4_XS& block, int, RowBlock& out) {
  for (int g = 0; g < 8; ++g) {
    read_nibbles(block.codes + g * 16, out.codes + g * 32);
    const int low = (block.scales_low[g / 2] >> (g % 2 * 4)) & 15;
    const int high = (block.scales_high >> (g * 2)) & 3;
    out.scales[g] = static_cast<uint8_t>((low | high << 4) - 32);
  }
  out.d = block.d;
}

constexpr PanelFormat format_of(Format format) {
  switch (format) {
    case Format::kQ4_0:
      return kPanelQ4_0;
    case Format::kQ4_1:
      return kPanelQ4_1;
    case Format::kQ5_0:
      return kPanelQ5_0;
    case Format::kQ5_1:
      return kPanelQ5_1;
    case Format::kQ8_0:
      return kPanelQ8_0;
    case Format::kQ2_K:
      return kPanelQ2_K;
    case Format::kQ3_K:
      return kPanelQ3_K;
    case Format::kQ4_K:
      return kPanelQ4_K;
    case Format::kQ5_K:
      return kPanelQ5_K;
    case Format::kQ6_K:
      return kPanelQ6_K;
    case Format::kIQ4_NL:
      return kPanelIQ4_NL;
    case Format::kIQ4_XS:
      return kPanelIQ4_XS;
    case Format::kMXFP4:
      return kPanelMXFP4;
    default:
      return {};
  }
}

// One plane of a unit: `Bits` bits from bit `From` of each code. `codes` is [32][16]: the lanes of
// a column side by side, so that a whole lane-vector is shifted into place at once.
template <int Bits, int From>
void write_plane(const uint8_t (*codes)[kPanelRows], std::byte* out) {
  constexpr int kPairsAWord = 16 / Bits;
  for (int word = 0; word < 16 / kPairsAWord; ++word) {
    uint32_t lanes[kPanelRows] = {};
    for (int i = 0; i < kPairsAWord; ++i) {
      const uint8_t* even = codes[2 * (word * kPairsAWord + i)];
      const uint8_t* odd = even + kPanelRows;
      for (int r = 0; r < kPanelRows; ++r) {
        const uint32_t low = (even[r] >> From) & ((1u << Bits) - 1);
        const uint32_t high = (odd[r] >> From) & ((1u << Bits) - 1);
        lanes[r] |= (low | high << 16) << (i * Bits);
      }
    }
    std::memcpy(out + word * 64, lanes, 64);
  }
}

template <PanelFormat P>
void write_unit(const uint8_t (*codes)[kPanelRows], std::byte* out) {
  if constexpr (P.bits == 8) return write_plane<8, 0>(codes, out);
  if constexpr (P.bits <= 3) write_plane<2, 0>(codes, out);
  if constexpr (P.bits == 3) write_plane<1, 2>(codes, out + 128);
  if constexpr (P.bits >= 4) write_plane<4, 0>(codes, out);
  if constexpr (P.bits == 5) write_plane<1, 4>(codes, out + 256);
  if constexpr (P.bits == 6) write_plane<2, 4>(codes, out + 256);
}

void put(std::byte* out, int64_t index, uint16_t half) {
  std::memcpy(out + index * 2, &half, 2);
}

template <PanelFormat P>
void write_scales(const RowBlock& row, int64_t lane, int64_t columns, std::byte* block) {
  if constexpr (P.is_super()) {
    put(block, lane, row.d);
    put(block, kPanelRows + lane, row.d_min);
  }
  std::byte* entry = block + P.block_scale_bytes();
  for (int64_t g = 0; g < columns / P.group; ++g, entry += P.group_scale_bytes()) {
    if constexpr (P.scales == Scales::kHalf || P.scales == Scales::kHalfMin)
      put(entry, lane, row.halves[g]);
    else
      entry[lane] = static_cast<std::byte>(row.scales[g]);
    if constexpr (P.scales == Scales::kHalfMin) put(entry, kPanelRows + lane, row.half_mins[g]);
    if constexpr (P.scales == Scales::kSuperMin)
      entry[kPanelRows + lane] = static_cast<std::byte>(row.mins[g]);
  }
}

template <class Block>
void pack_quantized(const op::Weight& weight, int64_t first_row, std::byte* out) {
  constexpr PanelFormat P = format_of(Block::kFormat);
  const int64_t rows = std::min(kPanelRows, weight.rows - first_row);
  for (int64_t first = 0; first < weight.columns; first += kBlock) {
    const int64_t columns = std::min(kBlock, weight.columns - first);
    alignas(64) uint8_t codes[kBlock][kPanelRows] = {};
    std::memset(out, 0, static_cast<size_t>(P.block_bytes(columns)));
    for (int64_t r = 0; r < rows; ++r) {
      RowBlock row;
      const std::byte* source =
          weight.row(first_row + r) + first / Block::kValues * static_cast<int64_t>(sizeof(Block));
      for (int64_t i = 0; i < columns / Block::kValues; ++i) {
        Block block;
        std::memcpy(&block, source + i * static_cast<int64_t>(sizeof block), sizeof block);
        read(block, static_cast<int>(i), row);
      }
      for (int64_t k = 0; k < columns; ++k) codes[k][r] = row.codes[k];
      write_scales<P>(row, r, columns, out);
    }
    std::byte* units = out + P.block_scale_bytes() + columns / P.group * P.group_scale_bytes();
    for (int64_t unit = 0; unit < columns / kUnit; ++unit)
      write_unit<P>(codes + unit * kUnit, units + unit * P.unit_bytes());
    out += P.block_bytes(columns);
  }
}

template <class T>
void pack_floats(const op::Weight& weight, int64_t first_row, std::byte* out) {
  const int64_t rows = std::min(kPanelRows, weight.rows - first_row);
  if (rows < kPanelRows)
    std::memset(out, 0, static_cast<size_t>(weight.columns * kPanelRows) * sizeof(T));
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  for (int64_t first = 0; first < weight.columns; first += kPanelRows) {
    const int64_t end = std::min(first + kPanelRows, weight.columns);
    for (int64_t r = 0; r < rows; ++r) {
      const std::byte* source = weight.row(first_row + r);
      for (int64_t k = first; k < end; ++k)
        std::memcpy(out + (k * kPanelRows + r) * kBytes, source + k * kBytes, sizeof(T));
    }
  }
}

}  // namespace

int64_t panel_bytes(const op::Weight& weight) {
  if (!takes_codes(weight)) return kPanelRows * weight.row_bytes();
  return format_of(weight.format->format()).panel_bytes(weight.columns);
}

int64_t panel_count(const op::Weight& weight) {
  return (weight.rows + kPanelRows - 1) / kPanelRows;
}

bool takes_codes(const op::Weight& weight) {
  return format_of(weight.format->format()).bits != 0;
}

ProductKernel product_kernel(const Kernels& kernels, const op::Weight& weight) {
  switch (weight.format->format()) {
    case Format::kF32:
      return kernels.product_f32;
    case Format::kF16:
      return kernels.product_f16;
    case Format::kBF16:
      return kernels.product_bf16;
    case Format::kQ4_0:
      return kernels.product_q4_0;
    case Format::kQ4_1:
      return kernels.product_q4_1;
    case Format::kQ5_0:
      return kernels.product_q5_0;
    case Format::kQ5_1:
      return kernels.product_q5_1;
    case Format::kQ8_0:
      return kernels.product_q8_0;
    case Format::kQ2_K:
      return kernels.product_q2_k;
    case Format::kQ3_K:
      return kernels.product_q3_k;
    case Format::kQ4_K:
      return kernels.product_q4_k;
    case Format::kQ5_K:
      return kernels.product_q5_k;
    case Format::kQ6_K:
      return kernels.product_q6_k;
    case Format::kIQ4_NL:
      return kernels.product_iq4_nl;
    case Format::kIQ4_XS:
      return kernels.product_iq4_xs;
    case Format::kMXFP4:
      return kernels.product_mxfp4;
  }
  not_decodable(weight.format->format());
}

void pack_panel(const op::Weight& weight, int64_t panel, std::byte* out) {
  const int64_t first_row = panel * kPanelRows;
  visit_format(weight.format->format(), [&](auto block) {
    using Block = decltype(block);
    if constexpr (format_of(Block::kFormat).bits != 0)
      pack_quantized<Block>(weight, first_row, out);
    else if constexpr (sizeof(Block) == 4)
      pack_floats<uint32_t>(weight, first_row, out);
    else
      pack_floats<uint16_t>(weight, first_row, out);
  });
}

}  // namespace lockstep::exec::cpu
