#include "exec/cpu/pack.h"

#include <algorithm>
#include <cstring>

#include "exec/cpu/kernels/panel_format.h"
#include "exec/row_codes.h"
#include "quant/blocks.h"

namespace lockstep::exec::cpu {
namespace {

using quant::Format;

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

template <CodeFormat P>
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

template <CodeFormat P>
void write_scales(const RowCodes& row, int64_t lane, int64_t columns, std::byte* block) {
  if constexpr (P.is_super()) {
    put(block, lane, row.d);
    put(block, kPanelRows + lane, row.d_min);
  }
  std::byte* entry = block + block_scale_bytes(P);
  for (int64_t g = 0; g < columns / P.group; ++g, entry += group_scale_bytes(P)) {
    if constexpr (P.scales == Scales::kHalf || P.scales == Scales::kHalfMin)
      put(entry, lane, row.halves[g]);
    else
      entry[lane] = static_cast<std::byte>(row.scales[g]);
    if constexpr (P.scales == Scales::kHalfMin) put(entry, kPanelRows + lane, row.half_mins[g]);
    if constexpr (P.scales == Scales::kSuperMin)
      entry[kPanelRows + lane] = static_cast<std::byte>(row.mins[g]);
  }
}

template <CodeFormat P>
void pack_quantized(const op::Weight& weight, int64_t first_row, std::byte* out) {
  const int64_t rows = std::min(kPanelRows, weight.rows - first_row);
  for (int64_t first = 0; first < weight.columns; first += kBlock) {
    const int64_t columns = std::min(kBlock, weight.columns - first);
    alignas(64) uint8_t codes[kBlock][kPanelRows] = {};
    std::memset(out, 0, static_cast<size_t>(block_bytes(P, columns)));
    for (int64_t r = 0; r < rows; ++r) {
      RowCodes row;
      read_codes(weight, first_row + r, first, columns, row);
      for (int64_t k = 0; k < columns; ++k) codes[k][r] = row.codes[k];
      write_scales<P>(row, r, columns, out);
    }
    std::byte* units = out + scale_bytes(P, columns);
    for (int64_t unit = 0; unit < columns / kUnit; ++unit)
      write_unit<P>(codes + unit * kUnit, units + unit * unit_bytes(P));
    out += block_bytes(P, columns);
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
  return panel_bytes(code_format(weight.format->format()), weight.columns);
}

int64_t panel_count(const op::Weight& weight) {
  return (weight.rows + kPanelRows - 1) / kPanelRows;
}

bool takes_codes(const op::Weight& weight) {
  return code_format(weight.format->format()).bits != 0;
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
  quant::not_decodable(weight.format->format());
}

void pack_panel(const op::Weight& weight, int64_t panel, std::byte* out) {
  const int64_t first_row = panel * kPanelRows;
  quant::visit_format(weight.format->format(), [&](auto block) {
    using Block = decltype(block);
    if constexpr (code_format(Block::kFormat).bits != 0)
      pack_quantized<code_format(Block::kFormat)>(weight, first_row, out);
    else if constexpr (sizeof(Block) == 4)
      pack_floats<uint32_t>(weight, first_row, out);
    else
      pack_floats<uint16_t>(weight, first_row, out);
  });
}

}  // namespace lockstep::exec::cpu
