// What the quantized formats have in common once their blocks are taken apart: codes of a few bits,
// and scales of groups of columns. Executors lay both out as suits their machines.
//
// Everything here is in an unnamed namespace since code that is compiled for one kind of machine
// includes it (exec/cpu/kernels/lanes_avx512.h tells why).
#pragma once

#include <cstdint>

#include "quant/format.h"

namespace lockstep::exec {
namespace {

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
struct CodeFormat {
  int bits;
  int group;  // columns that share a scale
  int offset;
  Levels levels;
  Scales scales;

  constexpr bool has_min() const {
    return offset != 0 || scales == Scales::kHalfMin || scales == Scales::kSuperMin ||
           scales == Scales::kSuperNibbles;
  }
  constexpr bool is_super() const { return scales >= Scales::kSuper; }
};

constexpr CodeFormat kCodesQ4_0 = {4, 32, 8, Levels::kPlain, Scales::kHalf};
constexpr CodeFormat kCodesQ4_1 = {4, 32, 0, Levels::kPlain, Scales::kHalfMin};
constexpr CodeFormat kCodesQ5_0 = {5, 32, 16, Levels::kPlain, Scales::kHalf};
constexpr CodeFormat kCodesQ5_1 = {5, 32, 0, Levels::kPlain, Scales::kHalfMin};
constexpr CodeFormat kCodesQ8_0 = {8, 32, 0, Levels::kPlain, Scales::kHalf};  // codes are signed
constexpr CodeFormat kCodesQ2_K = {2, 16, 0, Levels::kPlain, Scales::kSuperNibbles};
constexpr CodeFormat kCodesQ3_K = {3, 16, 4, Levels::kPlain, Scales::kSuper};
constexpr CodeFormat kCodesQ4_K = {4, 32, 0, Levels::kPlain, Scales::kSuperMin};
constexpr CodeFormat kCodesQ5_K = {5, 32, 0, Levels::kPlain, Scales::kSuperMin};
constexpr CodeFormat kCodesQ6_K = {6, 16, 32, Levels::kPlain, Scales::kSuper};
constexpr CodeFormat kCodesIQ4_NL = {4, 32, 0, Levels::kIq4, Scales::kHalf};
constexpr CodeFormat kCodesIQ4_XS = {4, 32, 0, Levels::kIq4, Scales::kSuper};
constexpr CodeFormat kCodesMXFP4 = {4, 32, 0, Levels::kMxfp4, Scales::kExponent};

// Of formats in floating point: no bits.
constexpr CodeFormat code_format(quant::Format format) {
  using quant::Format;
  switch (format) {
    case Format::kQ4_0:
      return kCodesQ4_0;
    case Format::kQ4_1:
      return kCodesQ4_1;
    case Format::kQ5_0:
      return kCodesQ5_0;
    case Format::kQ5_1:
      return kCodesQ5_1;
    case Format::kQ8_0:
      return kCodesQ8_0;
    case Format::kQ2_K:
      return kCodesQ2_K;
    case Format::kQ3_K:
      return kCodesQ3_K;
    case Format::kQ4_K:
      return kCodesQ4_K;
    case Format::kQ5_K:
      return kCodesQ5_K;
    case Format::kQ6_K:
      return kCodesQ6_K;
    case Format::kIQ4_NL:
      return kCodesIQ4_NL;
    case Format::kIQ4_XS:
      return kCodesIQ4_XS;
    case Format::kMXFP4:
      return kCodesMXFP4;
    case Format::kF32:
    case Format::kF16:
    case Format::kBF16:
      break;
  }
  return {};
}

}  // namespace
}  // namespace lockstep::exec
