// What adding up one by one does to given terms, in the worst honest order (docs/numerics.md).
#pragma once

#include <span>

#include "parity/term_statistics.h"

namespace lockstep::parity {

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
