// What adding up one by one does to given terms, in the worst honest order (docs/numerics.md).
#pragma once

#include <span>

#include "parity/rounding.h"
#include "parity/term_statistics.h"

namespace lockstep::parity {

// Terms that are this many units of the sum are so many steps of its last digit apart that their
// rounding errors are chance. Terms in double precision are products of numbers with half as many
// digits, so that more of them have digits in common.
constexpr double safe_units(double unit_of_type) {
  return unit_of_type < kSingle ? 0x1p32 : 0x1p9;
}
// Terms that are this many times the mean one may come first, and swallow the others.
inline constexpr double kLarge = 8;

struct SumNoise {
  double variance = 0;  // mean square of the error
  double squares = 0;   // sum of the terms' squares
};

// Of the terms of a sum, in a type with this unit. `start`: what engines may begin the sum with,
// such as a bias. `closely`: always looks at what becomes of small terms beside a large sum; else
// only where their sizes let it matter.
SumNoise noise_of_sum(std::span<const double> terms, double unit_of_type, double start = 0,
                      bool closely = false);
// The same where the sum and the statistics of its terms are known.
SumNoise noise_of_sum(std::span<const double> terms, double sum, TermStatistics of,
                      double unit_of_type, double start, bool closely);

}  // namespace lockstep::parity
