// How the quantized formats lie in memory once repacked.
//
// A panel is 16 rows of a weight, cut into blocks of up to 256 columns. A block holds
//   block scales   [2][16] halves, for formats of 256 values only
//   group scales   one entry of 16 lanes for each group of 16 or 32 columns
//   codes          for each unit of 32 columns: bits * 64 bytes
// Lane r of everything belongs to row r of the panel. Codes are unsigned, in planes of 8, 4, 2 and
// 1 bits; a 32-bit lane of a plane of b bits holds 32 / b columns: column 2 p in the lower half and
// 2 p + 1 in the upper one, at bit b * (p % (16 / b)), so that a shift and a mask give pairs of
// neighbouring columns as 16-bit numbers.
#pragma once

#include <cstdint>

#include "exec/code_format.h"

namespace lockstep::exec::cpu {
namespace {  // see lanes_avx512.h

constexpr int64_t kPanelRows = 16;
constexpr int64_t kBlock = 256;  // columns whose activations share a scale
constexpr int64_t kUnit = 32;

constexpr int64_t block_scale_bytes(CodeFormat format) {
  return format.is_super() ? 64 : 0;
}
constexpr int64_t group_scale_bytes(CodeFormat format) {
  switch (format.scales) {
    case Scales::kHalfMin:
      return 64;
    case Scales::kHalf:
    case Scales::kSuperMin:
      return 32;
    default:
      return 16;
  }
}
constexpr int64_t unit_bytes(CodeFormat format) {
  return format.bits * 64;
}
// Of a block of `columns` columns (a multiple of 32): its scales, and all of it.
constexpr int64_t scale_bytes(CodeFormat format, int64_t columns) {
  return block_scale_bytes(format) + columns / format.group * group_scale_bytes(format);
}
constexpr int64_t block_bytes(CodeFormat format, int64_t columns) {
  return scale_bytes(format, columns) + columns / kUnit * unit_bytes(format);
}
constexpr int64_t panel_bytes(CodeFormat format, int64_t columns) {
  return columns / kBlock * block_bytes(format, kBlock) +
         (columns % kBlock == 0 ? 0 : block_bytes(format, columns % kBlock));
}

}  // namespace
}  // namespace lockstep::exec::cpu
