// Building blocks of noise.cpp: variances of rounding errors (docs/numerics.md).
#pragma once

#include <algorithm>
#include <cmath>

#include "parity/arithmetic.h"

namespace lockstep::parity {

// Constants of a model and tables of angles are single precision in most engines, also in those
// that otherwise compute in double.
inline constexpr double kSingle = unit(DType::kF32);

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
  return (square(value * unit_of_type) + square(tiny(unit_of_type))) / 3;
}

// A sum of n terms added one after another: every partial sum is rounded. Over random orders the
// k-th partial sum has the mean square k/n * squares + (k/n * sum)^2. A sum that is 1/unit times as
// large as its terms no longer moves when they are added: what lies beyond is lost.
inline double summed(double n, double sum, double squares, double unit_of_type) {
  const double lost = std::fabs(sum) - std::sqrt(squares / std::max(n, 1.0)) / unit_of_type;
  return square(unit_of_type) / 3 * n * (squares / 2 + square(sum) / 3) +
         square(std::max(lost, 0.0));
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
