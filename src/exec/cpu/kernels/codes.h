// Reading panels of quantized weights: codes as pairs of 16-bit numbers, scales as floats.
// To be included after a lanes_*.h header.
#pragma once

#include <cstddef>

#include "exec/cpu/kernels/panel_format.h"

namespace lockstep::exec::cpu {
namespace {

LS_LANE F f_from_u8(const uint8_t* p) {
  return f_from_i(i_from_u8(p));
}

// The mask in both 16-bit halves of every lane.
LS_LANE I both_halves(uint32_t mask) {
  return i_set(static_cast<int32_t>(mask | mask << 16));
}

// Bits of a plane of `Bits` bits, pair number Pair of a unit, moved to bit `To`.
template <int Bits, int Pair, int To>
LS_LANE I plane_bits(const std::byte* plane) {
  constexpr int kPerWord = 16 / Bits;
  constexpr int kFrom = Pair % kPerWord * Bits;
  const I word = i_load(plane + Pair / kPerWord * 64);
  const I moved = i_shift16<kFrom - To>(word);
  if constexpr (To == 0 && kFrom + Bits == 16) return moved;
  return i_and(moved, both_halves(((1u << Bits) - 1) << To));
}

// Codes of columns 2 * Pair and 2 * Pair + 1 of a unit. Planes lie widest first.
template <CodeFormat P, int Pair>
LS_LANE I code_pair(const std::byte* unit, [[maybe_unused]] const Table& table) {
  if constexpr (P.bits == 8) {
    const I word = i_load(unit + Pair / 2 * 64);
    if constexpr (Pair % 2 == 0) return i_shift16_signed<8>(i_shift16<-8>(word));
    return i_shift16_signed<8>(word);
  } else if constexpr (P.bits == 2) {
    return plane_bits<2, Pair, 0>(unit);
  } else if constexpr (P.bits == 3) {
    return i_or(plane_bits<2, Pair, 0>(unit), plane_bits<1, Pair, 2>(unit + 128));
  } else if constexpr (P.levels != Levels::kPlain) {
    return i_level<Pair % 4>(table, i_load(unit + Pair / 4 * 64));
  } else {
    const I low = plane_bits<4, Pair, 0>(unit);
    if constexpr (P.bits == 5) return i_or(low, plane_bits<1, Pair, 4>(unit + 256));
    if constexpr (P.bits == 6) return i_or(low, plane_bits<2, Pair, 4>(unit + 256));
    return low;
  }
}

template <CodeFormat P>
LS_LANE Table level_table() {
  // As in quant/small_blocks.h, whose functions must not be used here; a test compares them.
  static constexpr int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
  static constexpr int8_t kMxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  return table_of(P.levels == Levels::kMxfp4 ? kMxfp4 : kIq4);
}

// The scales of one block of a panel.
template <CodeFormat P>
struct BlockScales {
  const std::byte* groups;
  F d, d_min;

  LS_LANE BlockScales at(const std::byte* block) {
    BlockScales out{block + block_scale_bytes(P), f_zero(), f_zero()};
    if constexpr (P.is_super()) out.d = f_from_half(reinterpret_cast<const uint16_t*>(block));
    if constexpr (P.scales == Scales::kSuperMin || P.scales == Scales::kSuperNibbles)
      out.d_min = f_from_half(reinterpret_cast<const uint16_t*>(block) + 16);
    return out;
  }

  // What a group's codes are multiplied by, and what is added: value = scale * code + min.
  void get(int64_t group, F& scale, F& min) const {
    const std::byte* entry = groups + group * group_scale_bytes(P);
    if constexpr (P.scales == Scales::kHalf || P.scales == Scales::kHalfMin)
      scale = f_from_half(reinterpret_cast<const uint16_t*>(entry));
    if constexpr (P.scales == Scales::kExponent) scale = powers(entry);
    if constexpr (P.scales == Scales::kSuper)
      scale = f_mul(d, f_from_i8(reinterpret_cast<const int8_t*>(entry)));
    if constexpr (P.scales == Scales::kSuperMin)
      scale = f_mul(d, f_from_u8(reinterpret_cast<const uint8_t*>(entry)));
    if constexpr (P.scales == Scales::kSuperNibbles) {
      uint8_t low[16], high[16];
      for (int i = 0; i < 16; ++i) {
        const auto byte = static_cast<uint8_t>(entry[i]);
        low[i] = byte & 15;
        high[i] = static_cast<uint8_t>(byte >> 4);
      }
      scale = f_mul(d, f_from_u8(low));
      min = f_mul(f_mul(d_min, f_from_u8(high)), f_set(-1));
    }
    if constexpr (P.scales == Scales::kHalfMin)
      min = f_from_half(reinterpret_cast<const uint16_t*>(entry) + 16);
    if constexpr (P.scales == Scales::kSuperMin)
      min = f_mul(f_mul(d_min, f_from_u8(reinterpret_cast<const uint8_t*>(entry) + 16)), f_set(-1));
    if constexpr (P.offset != 0) min = f_mul(scale, f_set(-static_cast<float>(P.offset)));
  }

  // Half of 2^(exponent - 127), as mxfp4_half_scale(): the product of two powers that are normal
  // numbers whatever the exponent.
  static F powers(const std::byte* entry) {
    const I exponent = i_from_u8(reinterpret_cast<const uint8_t*>(entry));
    const I half = i_shift_right<1>(exponent);
    const auto power = [](I of) { return f_from_bits(i_shift_left<23>(i_add(of, i_set(63)))); };
    return f_mul(power(half), power(i_sub(exponent, half)));
  }
};

}  // namespace
}  // namespace lockstep::exec::cpu
