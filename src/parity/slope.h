// Activation functions and their slopes, for what an error of their input does.
#pragma once

#include <cmath>
#include <numbers>

#include "op/activation.h"

namespace lockstep::parity {

// The tanh form of GELU is taken for the erf form: they differ by less than 1e-3.
inline double slope(op::Activate::Kind kind, double x) {
  const bool clamped = kind == op::Activate::Kind::kClampedSwish;
  if (clamped && x > op::Activate::kLimit) return 0;
  if (clamped || kind == op::Activate::Kind::kSilu) {
    const double steepness = clamped ? op::Activate::kSteepness : 1;
    const double s = 1 / (1 + std::exp(-steepness * x));
    return s * (1 + steepness * x * (1 - s));
  }
  const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
}

// Of the second input's function.
inline double slope_of_gate(op::Activate::Kind kind, double y) {
  return kind == op::Activate::Kind::kClampedSwish && std::fabs(y) > op::Activate::kLimit ? 0 : 1;
}

}  // namespace lockstep::parity
