#include "parity/own_error.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::parity {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Engines mask with minus infinity or with a number that leaves nothing after the softmax: -1e4,
// -65504, -1e9, ..., perhaps added to the score.
constexpr double kMasked = -5e3;

}  // namespace

double OwnError::ratio() const {
  double row = 0;
  if (error > 0) row = expected > 0 ? error / (kRowLimit * expected) : kInfinity;
  return std::max(row, worst_ratio / kElementLimit);
}

OwnError compare_row(std::span<const double> recorded, std::span<const double> replayed,
                     std::span<const double> variance, bool scores) {
  OwnError out;
  double errors = 0;
  double expected = 0;
  int64_t count = 0;
  const auto worst = [&](size_t i, double ratio) {
    out.worst_ratio = ratio;
    out.worst_index = static_cast<int64_t>(i);
    out.recorded = recorded[i];
    out.replayed = replayed[i];
  };
  for (size_t i = 0; i < recorded.size(); ++i) {
    const double actual = recorded[i];
    const double truth = replayed[i];
    // Undefined: 0/0 in a row that sees nothing, or made from a NaN. Nothing can be said.
    if (std::isnan(truth)) continue;
    if (truth == actual && std::isinf(truth)) continue;
    const bool masked = scores && truth == -kInfinity;
    if (masked && actual <= kMasked) continue;
    if (!std::isfinite(truth) || !std::isfinite(actual)) {
      const bool wrong_mask = (masked && std::isfinite(actual)) || (scores && actual == -kInfinity);
      if (out.non_finite) continue;
      if (out.worst_ratio == 0 || !wrong_mask) worst(i, kInfinity);
      out.non_finite = !wrong_mask;
      continue;
    }
    errors += (actual - truth) * (actual - truth);
    expected += variance[i];
    ++count;
  }
  if (count == 0) return out;
  out.error = std::sqrt(errors / static_cast<double>(count));
  out.expected = std::sqrt(expected / static_cast<double>(count));
  if (out.worst_ratio > 0) return out;
  // An element's own expectation may be tiny by chance; a tenth of the row's is always granted.
  for (size_t i = 0; i < recorded.size(); ++i) {
    const double error = std::fabs(recorded[i] - replayed[i]);
    if (!(error > 0) || !std::isfinite(error)) continue;
    const double own = std::sqrt(variance[i] + 0.01 * out.expected * out.expected);
    const double ratio = own > 0 ? error / own : kInfinity;
    if (ratio > out.worst_ratio) worst(i, ratio);
  }
  return out;
}

}  // namespace lockstep::parity
