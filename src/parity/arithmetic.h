// The arithmetic that an engine says it uses, as rounding units.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "base/dtype.h"
#include "op/op.h"
#include "parity/operand.h"
#include "trace/manifest.h"

namespace lockstep::parity {

// Half the distance between neighbours at 1: the largest relative error of one rounding.
constexpr double unit(DType dtype) {
  constexpr double kUnits[] = {0x1p-53, 0x1p-24, 0x1p-11, 0x1p-8};
  return kUnits[static_cast<int>(dtype)];
}

struct Arithmetic {
  double compute = unit(DType::kF32);      // of sums and functions
  double half_sums = unit(DType::kF32);    // of sums of products of f16 numbers
  double activations = unit(DType::kF32);  // of the numbers that ops hand on
  double kv = unit(DType::kF32);           // of keys and values in the cache
  double stored = unit(DType::kF32);       // of the result in the trace; 0: not recorded
  double read = 0;                         // of the inputs in the trace; 0: not recorded
  // Activations are rounded to whole numbers up to this one, times a scale for each block, before
  // they meet quantized weights; 0: they are not.
  int64_t levels = 0;
  Operand products;                // how activations are rounded before they meet any weight
  Operand cache;                   // how keys and values are, where `kv` does not say it
  std::optional<Operand> weights;  // how float weights are; not declared: as activations
  double factors = 0;              // of both factors of every product (tf32)
  bool declared = true;            // false: the engine did not say, f32 is assumed
  // The largest number of the step's tensor that each row of an op's input belongs to, where the
  // whole tensor shares a scale; empty: of the rows at hand.
  std::span<const double> largest;

  // Of factors of products, relative to numbers of the usual spread.
  double of_levels() const {
    const double whole = levels > 0 ? 0.64 / static_cast<double>(levels) : 0;
    return std::max(
        {whole, products.relative(), cache.relative(), factors, weights ? weights->relative() : 0});
  }

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

// That of a product with this weight: those of f16 numbers may be added up in less.
Arithmetic for_product(Arithmetic arithmetic, const op::Weight& weight);
// What a product with this weight rounds activations to, beyond the type of activations.
Operand activation_operand(const Arithmetic& arithmetic, const op::Weight& weight);
// What this weight itself is rounded to.
Operand weight_operand(const Arithmetic& arithmetic, const op::Weight& weight);

}  // namespace lockstep::parity
