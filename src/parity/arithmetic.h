// The arithmetic that an engine says it uses, as rounding units.
#pragma once

#include <algorithm>

#include "base/dtype.h"
#include "op/op.h"
#include "trace/manifest.h"

namespace lockstep::parity {

// Half the distance between neighbours at 1: the largest relative error of one rounding.
constexpr double unit(DType dtype) {
  constexpr double kUnits[] = {0x1p-53, 0x1p-24, 0x1p-11, 0x1p-8};
  return kUnits[static_cast<int>(dtype)];
}

struct Arithmetic {
  double compute = unit(DType::kF32);      // of sums and functions
  double activations = unit(DType::kF32);  // of the numbers that ops hand on
  double kv = unit(DType::kF32);           // of keys and values in the cache
  double stored = unit(DType::kF32);       // of the result in the trace; 0: not recorded
  double read = 0;                         // of the inputs in the trace; 0: not recorded
  // Activations are rounded to whole numbers up to this one, times a scale for each block, before
  // they meet quantized weights; 0: they are not.
  int64_t levels = 0;
  bool declared = true;  // false: the engine did not say, f32 is assumed

  // Of rounded activations, relative to numbers of the usual spread.
  constexpr double of_levels() const { return levels > 0 ? 0.64 / static_cast<double>(levels) : 0; }

  // How far the inputs that we know may be from those that the engine used.
  constexpr double operands() const { return std::max(activations, read); }
};

Arithmetic arithmetic_of(const trace::Precision& precision, DType stored);

// "f32, activations bf16, kv bf16".
std::string describe(const trace::Precision& precision);

// Whether a weight must be decoded with arithmetic of its own.
bool is_quantized(const op::Weight& weight);

inline constexpr int64_t kInt8Levels = 127;     // q8_0, q8_1, q8_k
inline constexpr int64_t kInt16Levels = 32767;  // i16

// How many numbers share a scale when activations are rounded to that many levels for a product
// with this weight. 8 bits: 256 for the K formats, 32 for the other quantized ones; 16 bits: 256.
// 0: they are not rounded.
int64_t activation_block(const op::Weight& weight, int64_t levels);

}  // namespace lockstep::parity
