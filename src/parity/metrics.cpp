#include "parity/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "parity/powers.h"

namespace lockstep::parity {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kTop = 10;
// Numbers are added up this many at a time, in two lanes: compilers do not make vectors of sums by
// themselves, since the order of adding changes the result.
constexpr size_t kStretch = 64;
using Lanes = double __attribute__((vector_size(16)));
constexpr size_t kLanes = sizeof(Lanes) / sizeof(double);

Lanes load(const double* from) {
  Lanes out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

Lanes absolute(Lanes x) {
  return x < 0 ? -x : x;
}

double sum(Lanes lanes) {
  return lanes[0] + lanes[1];
}

// Indices of the largest values, largest first, ties to the lowest index; NaN is never among them.
std::vector<size_t> largest(std::span<const double> values, size_t count) {
  std::vector<size_t> order;
  const auto comes_before = [&](size_t a, size_t b) { return values[a] > values[b]; };
  for (size_t i = 0; i < values.size(); ++i) {
    if (order.size() == count && !(values[i] > values[order.back()])) continue;
    if (std::isnan(values[i])) continue;
    order.insert(std::ranges::upper_bound(order, i, comes_before), i);
    if (order.size() > count) order.pop_back();
  }
  return order;
}

// Minus infinity is a token that is never chosen; one that only the second side excludes makes the
// divergence infinite.
std::optional<double> divergence(std::span<const double> p, std::span<const double> q) {
  for (const auto side : {p, q})
    for (const double value : side)
      if (std::isnan(value) || value == std::numeric_limits<double>::infinity())
        return std::nullopt;
  const Powers of_p(p);
  const Powers of_q(q);
  const double p_norm = of_p.log_of_all();
  const double q_norm = of_q.log_of_all();
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i)
    if (of_p.each[i] > 0) sum += of_p.each[i] * ((p[i] - p_norm) - (q[i] - q_norm));
  sum /= of_p.sum;
  if (std::isnan(sum)) return std::nullopt;  // all of a side is minus infinity
  return std::max(sum, 0.0);
}

}  // namespace

void Counts::add(double value) {
  if (std::isnan(value)) {
    ++nan;
  } else if (std::isinf(value)) {
    ++infinite;
  } else if (value == 0) {
    negative_zero += std::signbit(value) ? 1 : 0;
  } else if (std::fabs(value) < static_cast<double>(std::numeric_limits<float>::min())) {
    ++denormal;
  }
}

void Counts::add(const Counts& other) {
  nan += other.nan;
  infinite += other.infinite;
  negative_zero += other.negative_zero;
  denormal += other.denormal;
}

void Metrics::add(std::span<const double> reference_values, std::span<const double> suspect_values,
                  int64_t first_index) {
  LS_CHECK(reference_values.size() == suspect_values.size());
  size_t i = 0;
  for (; i + kStretch <= reference_values.size(); i += kStretch) {
    const double* a = reference_values.data() + i;
    const double* b = suspect_values.data() + i;
    const int64_t index = first_index + static_cast<int64_t>(i);
    if (add_ordinary(a, b, index)) continue;
    for (size_t k = 0; k < kStretch; ++k) add(a[k], b[k], index + static_cast<int64_t>(k));
  }
  for (; i < reference_values.size(); ++i)
    add(reference_values[i], suspect_values[i], first_index + static_cast<int64_t>(i));
}

// kStretch numbers, unless one of them is to be counted by itself: NaN, infinite, zero or denormal.
bool Metrics::add_ordinary(const double* reference_values, const double* suspect_values,
                           int64_t index) {
  const Lanes none{};
  const Lanes one = none + 1;
  Lanes differences{}, squares{}, squares_a{}, squares_b{}, crossed{}, most{}, other{}, flipped{};
  Lanes least = none + std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < kStretch; i += kLanes) {
    const Lanes a = load(reference_values + i);
    const Lanes b = load(suspect_values + i);
    const Lanes difference = absolute(a - b);
    const Lanes product = a * b;
    const Lanes size_a = absolute(a);
    const Lanes size_b = absolute(b);
    least = size_a < least ? size_a : least;
    least = size_b < least ? size_b : least;
    most = difference > most ? difference : most;
    other += a != b ? one : none;
    flipped += product < 0 ? one : none;
    differences += difference;
    squares += difference * difference;
    squares_a += a * a;
    squares_b += b * b;
    crossed += product;
  }
  // A NaN or infinity makes a sum of squares one too.
  if (!std::isfinite(sum(squares_a) + sum(squares_b)) ||
      std::min(least[0], least[1]) < static_cast<double>(std::numeric_limits<float>::min()))
    return false;
  elements += kStretch;
  differing += static_cast<int64_t>(sum(other));
  sign_flips += static_cast<int64_t>(sum(flipped));
  sum_difference += sum(differences);
  squares_difference += sum(squares);
  squares_reference += sum(squares_a);
  squares_suspect += sum(squares_b);
  products += sum(crossed);
  if (const double largest = std::max(most[0], most[1]); largest > max_difference) {
    max_difference = largest;
    int64_t at = 0;
    while (std::fabs(reference_values[at] - suspect_values[at]) != largest) ++at;
    max_index = index + at;
  }
  return true;
}

void Metrics::add(double reference_value, double suspect_value, int64_t index) {
  ++elements;
  reference.add(reference_value);
  suspect.add(suspect_value);
  const bool both_nan = std::isnan(reference_value) && std::isnan(suspect_value);
  const bool same = both_nan || (reference_value == suspect_value &&
                                 std::signbit(reference_value) == std::signbit(suspect_value));
  differing += same ? 0 : 1;
  if (!std::isfinite(reference_value) || !std::isfinite(suspect_value)) {
    non_finite_differs += same ? 0 : 1;
    return;
  }
  const double difference = std::fabs(reference_value - suspect_value);
  if (difference > max_difference) {
    max_difference = difference;
    max_index = index;
  }
  sum_difference += difference;
  squares_difference += difference * difference;
  squares_reference += reference_value * reference_value;
  squares_suspect += suspect_value * suspect_value;
  products += reference_value * suspect_value;
  sign_flips += reference_value * suspect_value < 0 ? 1 : 0;
}

void Metrics::add(const Metrics& other) {
  elements += other.elements;
  differing += other.differing;
  non_finite_differs += other.non_finite_differs;
  if (other.max_difference > max_difference) {
    max_difference = other.max_difference;
    max_index = other.max_index;
  }
  sum_difference += other.sum_difference;
  squares_difference += other.squares_difference;
  squares_reference += other.squares_reference;
  squares_suspect += other.squares_suspect;
  products += other.products;
  sign_flips += other.sign_flips;
  reference.add(other.reference);
  suspect.add(other.suspect);
}

double Metrics::mean_difference() const {
  return elements > 0 ? sum_difference / static_cast<double>(elements) : 0;
}

double Metrics::nmse() const {
  if (squares_difference == 0) return 0;
  return squares_reference > 0 ? squares_difference / squares_reference
                               : std::numeric_limits<double>::infinity();
}

double Metrics::relative_l2() const {
  return std::sqrt(nmse());
}

double Metrics::cosine() const {
  const double size = std::sqrt(squares_reference) * std::sqrt(squares_suspect);
  if (size == 0) return squares_reference == squares_suspect ? 1 : 0;
  return std::clamp(products / size, -1.0, 1.0);
}

double Metrics::magnitude_orders() const {
  if (squares_reference == 0 || squares_suspect == 0)
    return squares_reference == squares_suspect ? 0 : kNan;
  return std::log10(squares_suspect / squares_reference) / 2;
}

LogitMetrics logit_metrics(std::span<const double> reference, std::span<const double> suspect) {
  LogitMetrics out;
  const auto best_reference = largest(reference, kTop);
  const auto best_suspect = largest(suspect, kTop);
  if (best_reference.empty() || best_suspect.empty()) return out;
  const auto margin = [](std::span<const double> values, const std::vector<size_t>& best) {
    return best.size() > 1 ? values[best[0]] - values[best[1]] : 0;
  };
  out.reference_choice = static_cast<int32_t>(best_reference[0]);
  out.suspect_choice = static_cast<int32_t>(best_suspect[0]);
  out.reference_margin = margin(reference, best_reference);
  out.suspect_margin = margin(suspect, best_suspect);
  size_t shared = 0;
  for (const size_t i : best_reference)
    shared += static_cast<size_t>(std::ranges::count(best_suspect, i));
  out.top10_overlap = static_cast<double>(shared) / static_cast<double>(best_reference.size());
  out.kl_divergence = divergence(reference, suspect);
  return out;
}

}  // namespace lockstep::parity
