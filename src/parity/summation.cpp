#include "parity/summation.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "parity/rounding.h"
#include "parity/term_statistics.h"

namespace lockstep::parity {
namespace {

double size_of_large(std::span<const double> terms, const TermStatistics& of) {
  return kLarge * of.absolute / static_cast<double>(terms.size());
}

// Whether the terms that are not large have a mean size of at least this.
bool others_reach(double limit, std::span<const double> terms, const TermStatistics& of) {
  const auto n = static_cast<double>(terms.size());
  const double large = size_of_large(terms, of);
  if (of.largest <= large) return of.absolute / n >= limit;
  // A term that is large is at most its square over `large`: mostly this is enough to know.
  return of.absolute - of.squares / large >= n * limit ||
         mean_size(terms, large).value_or(of.largest) >= limit;
}

template <class T>
T rounded_to(double x, double unit_of_type) {
  if constexpr (std::is_same_v<T, float>) {
    if (unit_of_type == unit(DType::kF16))
      return half_to_float(float_to_half(static_cast<float>(x)));
    if (unit_of_type == unit(DType::kBF16))
      return bfloat_to_float(float_to_bfloat(static_cast<float>(x)));
  }
  return static_cast<T>(x);
}

// The error of adding up one after another, evaluated.
template <class T>
class Adding {
 public:
  Adding(double unit_of_type, double start)
      : unit_(unit_of_type), sum_(rounded_to<T>(start, unit_of_type)) {}

  // The error that this addition makes.
  double add(double term) {
    // In half precision and bfloat16 the sum of two numbers is exact enough in single precision.
    T next = sum_ + rounded_to<T>(term, unit_);
    if (unit_ > kSingle) next = rounded_to<T>(static_cast<double>(next), unit_);
    const double error = (static_cast<double>(next) - static_cast<double>(sum_)) - term;
    sum_ = next;
    return error;
  }

 private:
  double unit_;
  T sum_;
};

// The largest error that adding one after another makes: in the order of the terms, its reverse,
// and where large terms of one sign come first and those of the other last, so that all others are
// added to a large sum. Of these errors an engine that adds in parts may have some without those
// that would balance them: a stretch of the terms, or every 2nd, 4th, ... one.
template <class T>
double worst_error(std::span<const double> terms, const TermStatistics& of, double unit_of_type,
                   double start) {
  constexpr size_t kMostLanes = 32;
  double worst = 0;
  const auto see = [&](double error) {
    if (std::isfinite(error)) worst = std::max(worst, std::fabs(error));
  };
  Adding<T> forward(unit_of_type, 0);
  Adding<T> reversed(unit_of_type, 0);
  double of_forward = 0;
  double of_reversed = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    of_forward += forward.add(terms[i]);
    of_reversed += reversed.add(terms[terms.size() - 1 - i]);
  }
  see(of_forward);
  see(of_reversed);
  const double large = size_of_large(terms, of);
  for (const double sign : {1.0, -1.0}) {
    Adding<T> adding(unit_of_type, start);
    for (const double term : terms)
      if (sign * term > large) adding.add(term);
    double lanes[kMostLanes] = {};
    double all = 0;
    double least = 0;
    double most = 0;
    for (size_t i = 0; i < terms.size(); ++i) {
      if (std::fabs(terms[i]) > large) continue;
      const double error = adding.add(terms[i]);
      lanes[i % kMostLanes] += error;
      all += error;
      least = std::min(least, all);
      most = std::max(most, all);
    }
    see(most - least);
    for (size_t count = kMostLanes; count > 1; count /= 2)
      for (size_t lane = 0; lane < count; ++lane) {
        see(lanes[lane]);
        if (lane >= count / 2) lanes[lane - count / 2] += lanes[lane];
      }
  }
  return worst;
}

}  // namespace

SumNoise noise_of_sum(std::span<const double> terms, double unit_of_type, double start,
                      bool closely) {
  const double sum = sum_of(terms);
  return noise_of_sum(terms, sum, statistics_of(terms, sum, unit_of_type, 0), unit_of_type, start,
                      closely);
}

SumNoise noise_of_sum(std::span<const double> terms, double sum, TermStatistics of,
                      double unit_of_type, double start, bool closely) {
  if (start != 0) {
    const TermStatistics other = statistics_of(terms, sum, unit_of_type, start);
    of.partial = std::max(of.partial, other.partial);
    of.reach = std::max(of.reach, other.reach);
    of.known = std::max(of.known, other.known);
  }
  const double chance = square(unit_of_type) / 3 * static_cast<double>(terms.size()) * of.partial;
  if (!std::isfinite(chance)) return {chance, of.squares};
  // Terms that are small beside the sum may be lost; in the smallest types some always are.
  double known = of.known;
  if (closely || unit_of_type > kSingle ||
      !others_reach(safe_units(unit_of_type) * unit_of_type * of.reach, terms, of))
    known = unit_of_type < kSingle ? worst_error<double>(terms, of, unit_of_type, start)
                                   : worst_error<float>(terms, of, unit_of_type, start);
  return {with_known(chance, known), of.squares};
}

}  // namespace lockstep::parity
