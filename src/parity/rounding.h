// Building blocks of noise.cpp: variances of rounding errors (docs/numerics.md).
#pragma once

#include <algorithm>
#include <cmath>

#include "parity/arithmetic.h"

namespace lockstep::parity {

// Constants of a model and tables of angles are single precision in most engines, also in those
// that otherwise compute in double.
inline constexpr double kSingle = unit(DType::kF32);

// Variance of a number spread evenly from -1 to 1: multiplied by, since divisions are slow.
inline constexpr double kThird = 1.0 / 3;

constexpr double square(double x) {
  return x * x;
}

// Below its normal numbers a type has an absolute error: half the spacing of half precision's
// subnormals; the others may be flushed to zero.
constexpr double tiny(double unit_of_type) {
  return unit_of_type == unit(DType::kF16) ? 0x1p-25 : 0x1p-126;
}

// A number rounded once: the error is spread evenly over one unit to either side.
constexpr double rounded_once(double value, double unit_of_type) {
  return (square(value * unit_of_type) + square(tiny(unit_of_type))) * kThird;
}

// What is meant to happen beside what chance does: within two standard deviations chance explains
// it.
constexpr double with_known(double variance, double known) {
  return square(known) > 4 * variance ? variance + square(known) : variance;
}

// Products that are too small for the type, and factors that are, vanish or are off by a spacing:
// of n products of numbers with these sums of squares.
constexpr double of_vanishing(double n, double squares, double other_squares, double unit_of_type) {
  if (unit_of_type == unit(DType::kF16)) return n * square(tiny(unit_of_type)) / 3;
  return n * (n + squares + other_squares) * square(tiny(unit_of_type));
}

// A result is rounded by the last operation, then to the type of activations or of the trace.
constexpr double handed_on(double value, const Arithmetic& a) {
  return rounded_once(value, a.compute) + rounded_once(value, std::max(a.activations, a.stored));
}

// The rounding of an input's share in the result, where inputs are coarser than the arithmetic.
constexpr double of_operand(double share, const Arithmetic& a) {
  return a.operands() > a.compute ? rounded_once(share, a.operands()) : 0;
}

}  // namespace lockstep::parity
