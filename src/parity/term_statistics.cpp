#include "parity/term_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "parity/wide.h"

namespace lockstep::parity {
namespace {

double across_lanes(const double* lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// A number beside which doubles are as far apart as numbers of the type are beside x.
inline double beside(double x, double unit_of_type) {
  const double power = std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0x7ff0'0000'0000'0000u);
  return 0x1.8p53 * unit_of_type * power;
}

// What a term is made of: where it is a number itself, a weight times an input, or that with an
// input that was rounded.
enum class Term { kNumber, kProduct, kRoundedProduct };

struct TermSource {
  const double* numbers = nullptr;
  const float* weights = nullptr;
  const double* inputs = nullptr;
  const double* variances = nullptr;
  const double* errors = nullptr;
  double* products = nullptr;  // the terms go here
  size_t count = 0;
};

using TermFloats = float __attribute__((vector_size(kTermLanes * sizeof(float))));

template <Term kTerm>
[[gnu::always_inline]] inline void walk(const TermSource& from, double sum, double unit_of_type,
                                        double begun, TermStatistics* out, ProductSums* products) {
  constexpr size_t kBlock = 64;
  TermLanes squares = {};
  TermLanes absolute = {};
  TermLanes largest = {};
  TermLanes errors = {};
  TermLanes reverse_errors = {};
  TermLanes weight_squares = {};
  TermLanes chance = {};
  TermLanes known = {};
  double lanes[kTermLanes];
  double partial = begun;
  double mean = 0;  // of the partial sums, and of their squares
  double mean_squares = 0;
  double reach = std::fabs(begun);
  const size_t count = from.count;
  const auto n = static_cast<double>(count);
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t end = std::min(count, first + kBlock);
    const double here = beside(partial, unit_of_type);
    const double there = beside(2 * begun + sum - partial, unit_of_type);
    TermLanes sums = {};
    for (size_t i = first; i < end; i += kTermLanes) {
      const size_t left = end - i;
      TermLanes term = {};
      if constexpr (kTerm == Term::kNumber) {
        LS_LOAD(number, from.numbers + i, left);
        term = number;
      } else {
        TermFloats floats = {};
        if (left >= kTermLanes) {
          std::memcpy(&floats, from.weights + i, sizeof floats);
        } else {
          for (size_t j = 0; j < left; ++j) floats[j] = from.weights[i + j];
        }
        const TermLanes weight = __builtin_convertvector(floats, TermLanes);
        LS_LOAD(input, from.inputs + i, left);
        term = weight * input;
        LS_STORE(term, from.products + i, left);
        const TermLanes of_weight = weight * weight;
        weight_squares += of_weight;
        if constexpr (kTerm == Term::kRoundedProduct) {
          LS_LOAD(variance, from.variances + i, left);
          LS_LOAD(error, from.errors + i, left);
          chance += of_weight * variance;
          known += weight * error;
        }
      }
      const TermLanes size = LS_SIZES(term);
      sums += term;
      squares += term * term;
      absolute += size;
      largest = size > largest ? size : largest;
      errors += ((term + here) - here) - term;
      reverse_errors += ((term + there) - there) - term;
    }
    std::memcpy(lanes, &sums, sizeof lanes);
    const double before = partial;
    partial += across_lanes(lanes);
    const double share = static_cast<double>(end - first) / n;
    mean += share * (before + partial) / 2;
    mean_squares += share * (before * before + partial * partial) / 2;
    reach = std::max(reach, std::fabs(partial));
  }
  std::memcpy(lanes, &squares, sizeof lanes);
  out->squares = across_lanes(lanes);
  std::memcpy(lanes, &absolute, sizeof lanes);
  out->absolute = across_lanes(lanes);
  std::memcpy(lanes, &largest, sizeof lanes);
  out->largest = *std::max_element(lanes, lanes + kTermLanes);
  std::memcpy(lanes, &errors, sizeof lanes);
  const double in_order = across_lanes(lanes);
  std::memcpy(lanes, &reverse_errors, sizeof lanes);
  out->known = std::max(std::fabs(in_order), std::fabs(across_lanes(lanes)));
  const double both = 2 * begun + sum;  // a partial sum and that of the reverse order
  const double at_random = out->squares / 2 + sum * sum / 3 + begun * sum + begun * begun;
  out->partial = std::max({mean_squares, both * both - 2 * both * mean + mean_squares, at_random});
  out->reach = std::max(reach, out->largest);
  if constexpr (kTerm == Term::kNumber) return;
  std::memcpy(lanes, &weight_squares, sizeof lanes);
  products->weight_squares = across_lanes(lanes);
  std::memcpy(lanes, &chance, sizeof lanes);
  products->chance = across_lanes(lanes);
  std::memcpy(lanes, &known, sizeof lanes);
  products->known = across_lanes(lanes);
}

LS_WIDE void walk_numbers(const TermSource& from, double sum, double unit_of_type, double begun,
                          TermStatistics* out) {
  walk<Term::kNumber>(from, sum, unit_of_type, begun, out, nullptr);
}

LS_WIDE void walk_products(const TermSource& from, double sum, double unit_of_type, double begun,
                           ProductSums* out) {
  walk<Term::kProduct>(from, sum, unit_of_type, begun, &out->of_terms, out);
}

LS_WIDE void walk_rounded_products(const TermSource& from, double sum, double unit_of_type,
                                   double begun, ProductSums* out) {
  walk<Term::kRoundedProduct>(from, sum, unit_of_type, begun, &out->of_terms, out);
}

LS_WIDE double add_all(const double* numbers, size_t count, bool squared) {
  TermLanes sums = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    LS_LOAD(number, numbers + i, count - i);
    sums += squared ? number * number : number;
  }
  double lanes[kTermLanes];
  std::memcpy(lanes, &sums, sizeof lanes);
  return across_lanes(lanes);
}

LS_WIDE void add_errors(const double* recorded, const double* replayed, const double* variances,
                        size_t count, double* errors, double* expected) {
  TermLanes of_errors = {};
  TermLanes of_variances = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    LS_LOAD(is, recorded + i, count - i);
    LS_LOAD(should, replayed + i, count - i);
    LS_LOAD(variance, variances + i, count - i);
    const TermLanes error = is - should;
    of_errors += error * error;
    of_variances += variance;
  }
  double lanes[kTermLanes];
  std::memcpy(lanes, &of_errors, sizeof lanes);
  *errors = across_lanes(lanes);
  std::memcpy(lanes, &of_variances, sizeof lanes);
  *expected = across_lanes(lanes);
}

// The first from `i` on whose error may be more than `ratio` times its deviation; `count`: none.
LS_WIDE size_t find_beyond(const double* recorded, const double* replayed, const double* variances,
                           size_t i, size_t count, double ratio) {
  const double limit = ratio * ratio;
  const TermLanes zero = {};
  const TermLanes one = zero + 1;
  // Many before a look at what was found, then one by one.
  for (const size_t step : {8 * kTermLanes, kTermLanes})
    for (; i + step <= count; i += step) {
      TermLanes found = {};
      for (size_t at = i; at < i + step; at += kTermLanes) {
        LS_LOAD(is, recorded + at, kTermLanes);
        LS_LOAD(should, replayed + at, kTermLanes);
        LS_LOAD(variance, variances + at, kTermLanes);
        const TermLanes error = is - should;
        const TermLanes enough = variance * limit;
        found += error * error <= enough ? zero : one;
        found += enough > 1e-290 ? zero : one;
      }
      double lanes[kTermLanes];
      std::memcpy(lanes, &found, sizeof lanes);
      if (across_lanes(lanes) > 0) break;
    }
  return i;
}

// The sum of the sizes up to `large`, and how many there are.
LS_WIDE void add_small(const double* terms, size_t count, double large, double* sum, double* seen) {
  TermLanes sums = {};
  TermLanes ones = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    LS_LOAD(term, terms + i, count - i);
    const TermLanes size = LS_SIZES(term);
    const TermLanes zero = {};
    sums += size <= large ? size : zero;
    ones += size <= large ? zero + 1 : zero;
  }
  double lanes[kTermLanes];
  std::memcpy(lanes, &sums, sizeof lanes);
  *sum = across_lanes(lanes);
  std::memcpy(lanes, &ones, sizeof lanes);
  *seen = across_lanes(lanes);
}

LS_WIDE double add_products(const double* a, const double* b, size_t count, bool squared) {
  TermLanes sums = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    LS_LOAD(x, a + i, count - i);
    LS_LOAD(y, b + i, count - i);
    sums += (squared ? x * x : x) * y;
  }
  double lanes[kTermLanes];
  std::memcpy(lanes, &sums, sizeof lanes);
  return across_lanes(lanes);
}

}  // namespace

TermStatistics statistics_of(std::span<const double> terms, double sum, double unit_of_type,
                             double begun) {
  TermStatistics out;
  walk_numbers({.numbers = terms.data(), .count = terms.size()}, sum, unit_of_type, begun, &out);
  return out;
}

std::optional<double> mean_size(std::span<const double> terms, double large) {
  double sum = 0;
  double count = 0;
  add_small(terms.data(), terms.size(), large, &sum, &count);
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

ProductSums multiply(std::span<const float> weights, const double* inputs, const double* variances,
                     const double* errors, double sum, double unit_of_type,
                     std::span<double> terms) {
  ProductSums out;
  const TermSource from{.weights = weights.data(),
                        .inputs = inputs,
                        .variances = variances,
                        .errors = errors,
                        .products = terms.data(),
                        .count = weights.size()};
  (variances != nullptr ? walk_rounded_products : walk_products)(from, sum, unit_of_type, 0, &out);
  return out;
}

ErrorSums sum_errors(std::span<const double> recorded, const double* replayed,
                     const double* variances) {
  ErrorSums out;
  add_errors(recorded.data(), replayed, variances, recorded.size(), &out.squares, &out.variances);
  return out;
}

size_t next_beyond(std::span<const double> recorded, const double* replayed,
                   const double* variances, size_t first, double ratio) {
  return find_beyond(recorded.data(), replayed, variances, first, recorded.size(), ratio);
}

double sum_of(std::span<const double> numbers) {
  return add_all(numbers.data(), numbers.size(), false);
}

double sum_of_products(std::span<const double> a, const double* b) {
  return add_products(a.data(), b, a.size(), false);
}

double sum_of_squares_times(std::span<const double> a, const double* b) {
  return add_products(a.data(), b, a.size(), true);
}

double sum_of_squares(std::span<const double> numbers) {
  return add_all(numbers.data(), numbers.size(), true);
}

}  // namespace lockstep::parity
