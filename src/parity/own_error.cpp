#include "parity/own_error.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "parity/term_statistics.h"

namespace lockstep::parity {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Engines mask with minus infinity or with a number that leaves nothing after the softmax: -1e4,
// -65504, -1e9, ..., perhaps added to the score.
constexpr double kMasked = -5e3;

// How an element stands beside what it should be, where that is no question of size.
enum class Standing {
  kCounts,     // both are finite
  kSame,       // equal, masked on both sides, or undefined: nothing can be said
  kWrongMask,  // a score that is masked and should not be, or the reverse
  kNonFinite,  // a NaN or infinity on one side
};

Standing standing(double actual, double truth, bool scores) {
  // Undefined: 0/0 in a row that sees nothing, or made from a NaN.
  if (std::isnan(truth)) return Standing::kSame;
  if (truth == actual && std::isinf(truth)) return Standing::kSame;
  const bool masked = scores && truth == -kInfinity;
  if (masked && actual <= kMasked) return Standing::kSame;
  if (std::isfinite(truth) && std::isfinite(actual)) return Standing::kCounts;
  const bool wrong_mask = (masked && std::isfinite(actual)) || (scores && actual == -kInfinity);
  return wrong_mask ? Standing::kWrongMask : Standing::kNonFinite;
}

// An element's own expectation may be tiny by chance; a tenth of the row's is always granted.
double ratio_of(double error, double variance, double row_expected) {
  const double own = std::sqrt(variance + 0.01 * row_expected * row_expected);
  return own > 0 ? error / own : kInfinity;
}

}  // namespace

double OwnError::ratio() const {
  double row = 0;
  if (error > 0) row = expected > 0 ? error / (kRowLimit * expected) : kInfinity;
  return std::max(row, worst_ratio / kElementLimit);
}

bool OwnError::is_worse_than(const OwnError& other) const {
  if (non_finite != other.non_finite) return non_finite;
  if (ratio() != other.ratio()) return ratio() > other.ratio();
  return position < other.position;
}

OwnError compare_row(std::span<const double> recorded, std::span<const double> replayed,
                     std::span<const double> variance, bool scores) {
  OwnError out;
  const auto worst = [&](size_t i, double ratio) {
    out.worst_ratio = ratio;
    out.worst_index = static_cast<int64_t>(i);
    out.recorded = recorded[i];
    out.replayed = replayed[i];
  };
  auto [errors, expected] = sum_errors(recorded, replayed.data(), variance.data());
  auto count = std::ssize(recorded);
  // All numbers are finite then, as nearly always.
  if (!std::isfinite(errors)) {
    errors = expected = 0;
    count = 0;
    for (size_t i = 0; i < recorded.size(); ++i) {
      const Standing how = standing(recorded[i], replayed[i], scores);
      if (how == Standing::kSame) continue;
      if (how != Standing::kCounts) {
        if (out.non_finite) continue;
        if (out.worst_ratio == 0 || how == Standing::kNonFinite) worst(i, kInfinity);
        out.non_finite = how == Standing::kNonFinite;
        continue;
      }
      const double error = recorded[i] - replayed[i];
      errors += error * error;
      expected += variance[i];
      ++count;
    }
  }
  if (count == 0) return out;
  out.error = std::sqrt(errors / static_cast<double>(count));
  out.expected = std::sqrt(expected / static_cast<double>(count));
  if (out.worst_ratio > 0) return out;
  for (size_t i = 0; i < recorded.size(); ++i) {
    // Most are clearly less than the worst so far, which needs no root to be seen.
    if (i % 8 == 0) i = next_beyond(recorded, replayed.data(), variance.data(), i, out.worst_ratio);
    if (i >= recorded.size()) break;
    const double error = std::fabs(recorded[i] - replayed[i]);
    if (!(error > 0) || !std::isfinite(error)) continue;
    const double ratio = ratio_of(error, variance[i], out.expected);
    if (ratio > out.worst_ratio) worst(i, ratio);
  }
  return out;
}

double counted_error(double recorded, double replayed, bool scores) {
  const Standing how = standing(recorded, replayed, scores);
  if (how == Standing::kSame) return 0;
  return how == Standing::kCounts ? recorded - replayed : kInfinity;
}

std::vector<int64_t> elements_beyond(double limit, std::span<const double> recorded,
                                     std::span<const double> replayed,
                                     std::span<const double> variance, bool scores) {
  const double expected = compare_row(recorded, replayed, variance, scores).expected;
  std::vector<int64_t> out;
  for (size_t i = 0; i < recorded.size(); ++i) {
    const Standing how = standing(recorded[i], replayed[i], scores);
    if (how == Standing::kSame) continue;
    const double error = std::fabs(recorded[i] - replayed[i]);
    if (how != Standing::kCounts || (error > 0 && ratio_of(error, variance[i], expected) > limit))
      out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

}  // namespace lockstep::parity
