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

namespace lockstep::exec::cpu {
namespace {  // see lanes_avx512.h

constexpr int64_t kPanelRows = 16;
constexpr int64_t kBlock = 256;  // columns whose activations share a scale
constexpr int64_t kUnit = 32;

enum class Scales {
  kHalf,          // group: half scale
  kHalfMin,       // group: half scale, half offset
  kExponent,      // group: power of two
  kSuper,         // block: half; group: signed 8-bit factor of it
  kSuperMin,      // block: half scale, half offset; group: 8-bit factors of both
  kSuperNibbles,  // the same with 4-bit factors in one byte
};
enum class Levels { kPlain, kIq4, kMxfp4 };

// value = scale * (level[code] - offset) + min
struct PanelFormat {
  int bits;
  int group;
  int offset;
  Levels levels;
  Scales scales;

  constexpr bool has_min() const {
    return offset != 0 || scales == Scales::kHalfMin || scales == Scales::kSuperMin ||
           scales == Scales::kSuperNibbles;
  }
  constexpr bool is_super() const { return scales >= Scales::kSuper; }
  constexpr int64_t block_scale_bytes() const { return is_super() ? 64 : 0; }
  constexpr int64_t group_scale_bytes() const {
    switch (scales) {
      case Scales::kHalfMin:
        return 64;
      case Scales::kHalf:
      case Scales::kSuperMin:
        return 32;
      default:
        return 16;
    }
  }
  constexpr int64_t unit_bytes() const { return bits * 64; }
  // Of a block of `columns` columns (a multiple of 32).
  constexpr int64_t block_bytes(int64_t columns) const {
    return block_scale_bytes() + columns / group * group_scale_bytes() +
           columns / kUnit * unit_bytes();
  }
  constexpr int64_t panel_bytes(int64_t columns) const {
    return columns / kBlock * block_bytes(kBlock) +
           (columns % kBlock == 0 ? 0 : block_bytes(columns % kBlock));
  }
};

constexpr PanelFormat kPanelQ4_0 = {4, 32, 8, Levels::kPlain, Scales::kHalf};
constexpr PanelFormat kPanelQ4_1 = {4, 32, 0, Levels::kPlain, Scales::kHalfMin};
constexpr PanelFormat kPanelQ5_0 = {5, 32, 16, Levels::kPlain, Scales::kHalf};
constexpr PanelFormat kPanelQ5_1 = {5, 32, 0, Levels::kPlain, Scales::kHalfMin};
constexpr PanelFormat kPanelQ8_0 = {8, 32, 0, Levels::kPlain, Scales::kHalf};  // codes are signed
constexpr PanelFormat kPanelQ2_K = {2, 16, 0, Levels::kPlain, Scales::kSuperNibbles};
constexpr PanelFormat kPanelQ3_K = {3, 16, 4, Levels::kPlain, Scales::kSuper};
constexpr PanelFormat kPanelQ4_K = {4, 32, 0, Levels::kPlain, Scales::kSuperMin};
constexpr PanelFormat kPanelQ5_K = {5, 32, 0, Levels::kPlain, Scales::kSuperMin};
constexpr PanelFormat kPanelQ6_K = {6, 16, 32, Levels::kPlain, Scales::kSuper};
constexpr PanelFormat kPanelIQ4_NL = {4, 32, 0, Levels::kIq4, Scales::kHalf};
constexpr PanelFormat kPanelIQ4_XS = {4, 32, 0, Levels::kIq4, Scales::kSuper};
constexpr PanelFormat kPanelMXFP4 = {4, 32, 0, Levels::kMxfp4, Scales::kExponent};

}  // namespace
}  // namespace lockstep::exec::cpu
