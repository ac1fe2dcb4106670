// The functions of Activate, in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "op/op.h"

namespace lockstep::op {

// f of the first input.
inline double activated(Activate::Kind kind, double x) {
  switch (kind) {
    case Activate::Kind::kSilu:
      return x / (1 + std::exp(-x));
    case Activate::Kind::kGeluTanh:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activate::Kind::kGeluErf:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activate::Kind::kClampedSwish:
      break;
  }
  const double bounded = std::min(x, Activate::kLimit);
  return bounded / (1 + std::exp(-Activate::kSteepness * bounded));
}

// g of the second input.
inline double factor_of_gate(Activate::Kind kind, double y) {
  if (kind != Activate::Kind::kClampedSwish) return y;
  return 1 + std::clamp(y, -Activate::kLimit, Activate::kLimit);
}

}  // namespace lockstep::op
