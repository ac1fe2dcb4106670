#include "parity/rows.h"

#include <cmath>
#include <limits>

namespace lockstep::parity {

RowError row_error(const OwnError& own) {
  const double ratio = own.non_finite ? std::numeric_limits<double>::infinity() : own.ratio();
  return {own.position, static_cast<float>(ratio), static_cast<float>(own.error)};
}

RowDifference row_difference(int64_t position, const Metrics& metrics) {
  const double apart = metrics.non_finite_differs > 0 ? std::numeric_limits<double>::infinity()
                                                      : metrics.relative_l2();
  const double elements = static_cast<double>(std::max<int64_t>(metrics.elements, 1));
  return {position, static_cast<float>(apart),
          static_cast<float>(std::sqrt(metrics.squares_difference / elements))};
}

}  // namespace lockstep::parity
