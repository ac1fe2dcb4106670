// Activation functions and their slopes, for what an error of their input does.
#pragma once

#include <cmath>
#include <numbers>

#include "op/op.h"

namespace lockstep::parity {

// The tanh form of GELU is taken for the erf form: they differ by less than 1e-3.
inline double slope(op::Activate::Kind kind, double x) {
  if (kind == op::Activate::Kind::kSilu) {
    const double s = 1 / (1 + std::exp(-x));
    return s * (1 + x * (1 - s));
  }
  const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
}

inline double activated(op::Activate::Kind kind, double x) {
  if (kind == op::Activate::Kind::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
}

}  // namespace lockstep::parity
