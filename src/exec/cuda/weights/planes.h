// How quantized weights lie on the device.
//
// A row is cut into units of 32 columns. A unit's codes are words of four bytes, so arranged that a
// few operations on a word give four codes of consecutive columns as bytes, for the dot product of
// bytes that the hardware has:
//   nibbles  16 bytes: word j has the columns 8j .. 8j+3 in its low nibbles, 8j+4 .. 8j+7 in its
//            high ones; for codes that are looked up in a table, nibble i is column 8j + i
//   twos      8 bytes: byte b of word k has the columns 16k + 4s + b in its bits 2s and 2s+1
//   ones      4 bytes: byte b has the columns 4i + b in its bit i
//   bytes    32 bytes: in order
// Codes of 8 bits are bytes, of 4 nibbles, of 2 twos; of 6 nibbles and twos, of 5 nibbles and ones,
// of 3 twos and ones, the second part in a plane of its own, above the bits of the first.
#pragma once

#include "exec/code_format.h"

namespace lockstep::exec::cuda {
namespace {

constexpr int kUnit = 32;
constexpr int kUnitsOfBlock = 8;

struct UnitBytes {
  int codes, extra, scales;
  int block;  // of eight units
};

constexpr UnitBytes unit_bytes(const CodeFormat& f) {
  UnitBytes out{};
  out.codes = f.bits == 8 ? 32 : f.bits >= 4 ? 16 : 8;
  out.extra = f.bits == 6 ? 8 : f.bits == 5 || f.bits == 3 ? 4 : 0;
  switch (f.scales) {
    case Scales::kHalf:
      out.scales = 2;
      break;
    case Scales::kHalfMin:
      out.scales = 4;
      break;
    case Scales::kExponent:
      out.scales = 1;
      break;
    case Scales::kSuper:
      out.scales = kUnit / f.group;
      out.block = 2;
      break;
    case Scales::kSuperMin:
    case Scales::kSuperNibbles:
      out.scales = 2;
      out.block = 4;
      break;
  }
  return out;
}

}  // namespace
}  // namespace lockstep::exec::cuda
