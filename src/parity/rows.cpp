#include "parity/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep::parity {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr size_t kPointsKept = OpenedRow::kPoints;
constexpr size_t kWorstShown = 10;  // with their inputs

// Error over what is granted to the element alone.
double element_ratio(double error, double variance, double row_rounding) {
  if (error == 0) return 0;
  const double own = std::sqrt(variance + 0.01 * row_rounding * row_rounding);
  const double ratio = error / (kElementLimit * own);
  return std::isnan(ratio) ? kUnbounded : ratio;
}

size_t bin_of(double error, double rounding) {
  constexpr auto kBins = static_cast<int>(std::tuple_size_v<decltype(OpenedRow::histogram)>);
  if (error == 0) return 0;
  const double power = std::floor(std::log2(error / rounding));
  if (std::isnan(power)) return kBins - 1;
  return static_cast<size_t>(std::clamp(power - OpenedRow::kLowest + 2, 1.0, kBins - 1.0));
}

}  // namespace

RowError row_error(const OwnError& own) {
  const double ratio = own.non_finite ? kUnbounded : own.ratio();
  return {own.position, static_cast<float>(ratio), static_cast<float>(own.error)};
}

RowDifference row_difference(int64_t position, const Metrics& metrics) {
  const double apart = metrics.non_finite_differs > 0 ? kUnbounded : metrics.relative_l2();
  const double elements = static_cast<double>(std::max<int64_t>(metrics.elements, 1));
  return {position, static_cast<float>(apart),
          static_cast<float>(std::sqrt(metrics.squares_difference / elements))};
}

OpenedRow open_row(std::span<const double> recorded, std::span<const double> expected,
                   std::span<const double> variance, bool scores) {
  OpenedRow out;
  const OwnError own = compare_row(recorded, expected, variance, scores);
  out.ratio = own.non_finite ? kUnbounded : own.ratio();
  out.error = own.error;
  out.bound = kRowLimit * own.expected;
  out.elements = std::ssize(recorded);
  std::vector<double> ratios(recorded.size());
  for (size_t i = 0; i < recorded.size(); ++i) {
    const double error = std::fabs(counted_error(recorded[i], expected[i], scores));
    ratios[i] = element_ratio(error, variance[i], own.expected);
    ++out.histogram[bin_of(error, std::sqrt(variance[i] + 0.01 * own.expected * own.expected))];
  }
  std::vector<int32_t> order(recorded.size());
  std::iota(order.begin(), order.end(), 0);
  const auto middle = order.begin() + static_cast<int64_t>(std::min(kPointsKept / 4, order.size()));
  std::ranges::partial_sort(order, middle, [&](int32_t a, int32_t b) {
    return ratios[static_cast<size_t>(a)] > ratios[static_cast<size_t>(b)];
  });
  for (size_t i = 0; i < std::min(kWorstShown, order.size()); ++i) {
    const auto at = static_cast<size_t>(order[i]);
    if (ratios[at] > 0) out.worst.push_back({order[i], recorded[at], expected[at], ratios[at], {}});
  }
  if (order.size() > kPointsKept) {
    // The worst, and others spread evenly over the row.
    order.erase(middle, order.end());
    const size_t rest = kPointsKept - order.size();
    for (size_t i = 0; i < rest; ++i)
      order.push_back(static_cast<int32_t>(i * recorded.size() / rest));
  }
  std::ranges::sort(order);
  order.erase(std::unique(order.begin(), order.end()), order.end());
  out.index = std::move(order);
  for (const int32_t i : out.index) {
    const auto at = static_cast<size_t>(i);
    out.recorded.push_back(static_cast<float>(recorded[at]));
    out.errors.push_back(static_cast<float>(counted_error(recorded[at], expected[at], scores)));
  }
  return out;
}

}  // namespace lockstep::parity
