#include "parity/term_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace lockstep::parity {
namespace {

// The operations and their order are the same everywhere, and so are the bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LS_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LS_WIDE
#endif

constexpr size_t kTermLanes = 8;
using TermLanes = double __attribute__((vector_size(kTermLanes * sizeof(double))));
using TermBits = int64_t __attribute__((vector_size(kTermLanes * sizeof(double))));

// The next numbers; zeros where there are no more.
#define LS_LOAD(lanes, from, left)                          \
  TermLanes lanes = {};                                     \
  if (left >= kTermLanes) {                                 \
    std::memcpy(&lanes, from, sizeof lanes);                \
  } else {                                                  \
    for (size_t j = 0; j < left; ++j) lanes[j] = (from)[j]; \
  }                                                         \
  static_cast<void>(0)

// As many of them as there is room for.
#define LS_STORE(lanes, to, left)                         \
  if (left >= kTermLanes) {                               \
    std::memcpy(to, &lanes, sizeof lanes);                \
  } else {                                                \
    for (size_t j = 0; j < left; ++j) (to)[j] = lanes[j]; \
  }                                                       \
  static_cast<void>(0)

double across_lanes(const double* lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// A number beside which doubles are as far apart as numbers of the type are beside x.
inline double beside(double x, double unit_of_type) {
  const double power = std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0x7ff0'0000'0000'0000u);
  return 0x1.8p53 * unit_of_type * power;
}

LS_WIDE void find_statistics(const double* terms, size_t count, double sum, double unit_of_type,
                             double begun, TermStatistics* out) {
  constexpr size_t kBlock = 64;
  TermLanes squares = {};
  TermLanes absolute = {};
  TermLanes largest = {};
  TermLanes errors = {};
  TermLanes reverse_errors = {};
  double lanes[kTermLanes];
  double partial = begun;
  double mean = 0;  // of the partial sums, and of their squares
  double mean_squares = 0;
  double reach = std::fabs(begun);
  const auto n = static_cast<double>(count);
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t end = std::min(count, first + kBlock);
    const double here = beside(partial, unit_of_type);
    const double there = beside(2 * begun + sum - partial, unit_of_type);
    TermLanes sums = {};
    for (size_t i = first; i < end; i += kTermLanes) {
      LS_LOAD(term, terms + i, end - i);
      const TermLanes size =
          reinterpret_cast<TermLanes>(reinterpret_cast<TermBits>(term) & INT64_MAX);
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
  const double known = across_lanes(lanes);
  std::memcpy(lanes, &reverse_errors, sizeof lanes);
  out->known = std::max(std::fabs(known), std::fabs(across_lanes(lanes)));
  const double both = 2 * begun + sum;  // a partial sum and that of the reverse order
  const double at_random = out->squares / 2 + sum * sum / 3 + begun * sum + begun * begun;
  out->partial = std::max({mean_squares, both * both - 2 * both * mean + mean_squares, at_random});
  out->reach = std::max(reach, out->largest);
}

LS_WIDE void add_all(const double* numbers, size_t count, double* sum, double* squares) {
  TermLanes sums = {};
  TermLanes of_squares = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    LS_LOAD(number, numbers + i, count - i);
    sums += number;
    of_squares += number * number;
  }
  double lanes[kTermLanes];
  std::memcpy(lanes, &sums, sizeof lanes);
  *sum = across_lanes(lanes);
  std::memcpy(lanes, &of_squares, sizeof lanes);
  *squares = across_lanes(lanes);
}

// The sum of the sizes up to `large`, and how many there are.
LS_WIDE void add_small(const double* terms, size_t count, double large, double* sum, double* seen) {
  TermLanes sums = {};
  TermLanes ones = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    LS_LOAD(term, terms + i, count - i);
    const TermLanes size =
        reinterpret_cast<TermLanes>(reinterpret_cast<TermBits>(term) & INT64_MAX);
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

LS_WIDE void mix_all(const double* shares, const double* values, const double* variances,
                     double center, size_t count, double* terms, MixSums* out) {
  TermLanes squares = {};
  TermLanes of_weights = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    const size_t left = count - i;
    LS_LOAD(share, shares + i, left);
    LS_LOAD(value, values + i, left);
    LS_LOAD(variance, variances + i, left);
    const TermLanes term = share * value;
    const TermLanes from_center = value - center;
    squares += value * value;
    of_weights += variance * (from_center * from_center) + variance * (center * center);
    LS_STORE(term, terms + i, left);
  }
  double lanes[kTermLanes];
  std::memcpy(lanes, &squares, sizeof lanes);
  out->value_squares = across_lanes(lanes);
  std::memcpy(lanes, &of_weights, sizeof lanes);
  out->of_weights = across_lanes(lanes);
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

using TermFloats = float __attribute__((vector_size(kTermLanes * sizeof(float))));

LS_WIDE void multiply_all(const float* weights, const double* inputs, const double* variances,
                          const double* errors, size_t count, double* terms, ProductSums* out) {
  TermLanes sums = {};
  TermLanes squares = {};
  TermLanes chance = {};
  TermLanes known = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    const size_t left = count - i;
    TermFloats floats = {};
    if (left >= kTermLanes) {
      std::memcpy(&floats, weights + i, sizeof floats);
    } else {
      for (size_t j = 0; j < left; ++j) floats[j] = weights[i + j];
    }
    const TermLanes weight = __builtin_convertvector(floats, TermLanes);
    LS_LOAD(input, inputs + i, left);
    const TermLanes products = weight * input;
    const TermLanes of_weight = weight * weight;
    sums += products;
    squares += of_weight;
    if (variances != nullptr) {
      LS_LOAD(variance, variances + i, left);
      LS_LOAD(error, errors + i, left);
      chance += of_weight * variance;
      known += weight * error;
    }
    LS_STORE(products, terms + i, left);
  }
  double lanes[kTermLanes];
  std::memcpy(lanes, &sums, sizeof lanes);
  out->terms = across_lanes(lanes);
  std::memcpy(lanes, &squares, sizeof lanes);
  out->weight_squares = across_lanes(lanes);
  std::memcpy(lanes, &chance, sizeof lanes);
  out->chance = across_lanes(lanes);
  std::memcpy(lanes, &known, sizeof lanes);
  out->known = across_lanes(lanes);
}

}  // namespace

TermStatistics statistics_of(std::span<const double> terms, double sum, double unit_of_type,
                             double begun) {
  TermStatistics out;
  find_statistics(terms.data(), terms.size(), sum, unit_of_type, begun, &out);
  return out;
}

std::optional<double> mean_size(std::span<const double> terms, double large) {
  double sum = 0;
  double count = 0;
  add_small(terms.data(), terms.size(), large, &sum, &count);
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

ProductSums multiply(std::span<const float> weights, const double* inputs, const double* variances,
                     const double* errors, std::span<double> terms) {
  ProductSums out;
  multiply_all(weights.data(), inputs, variances, errors, weights.size(), terms.data(), &out);
  return out;
}

MixSums mix_terms(std::span<const double> shares, const double* values, const double* variances,
                  double center, double* terms) {
  MixSums out;
  mix_all(shares.data(), values, variances, center, shares.size(), terms, &out);
  return out;
}

double sum_of(std::span<const double> numbers) {
  double sum = 0;
  double squares = 0;
  add_all(numbers.data(), numbers.size(), &sum, &squares);
  return sum;
}

double sum_of_products(std::span<const double> a, const double* b) {
  return add_products(a.data(), b, a.size(), false);
}

double sum_of_squares_times(std::span<const double> a, const double* b) {
  return add_products(a.data(), b, a.size(), true);
}

double sum_of_squares(std::span<const double> numbers) {
  double sum = 0;
  double squares = 0;
  add_all(numbers.data(), numbers.size(), &sum, &squares);
  return squares;
}

}  // namespace lockstep::parity
