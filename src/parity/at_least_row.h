// What rounding does at least to the elements of one row of a product, from their estimates.
#pragma once

#include <cstdint>

namespace lockstep::parity {

// At least (sqrt(x) - off)^2, without a root.
// Negative: nothing is left.
constexpr double less(double x, double off_squared) {
  constexpr double kShare = 0x1p-10;
  return x * (1 - kShare) - off_squared / kShare;
}

// What the square of a known error's estimate is off by, as a share of chance: of n errors that
// are so many standard deviations at most.
constexpr double of_known(double deviation, double n, double error) {
  return error * deviation * (error * deviation) * n;
}

// Of rounded factors: what chance does, and what is meant where that is clearly more. `error`: a
// share that estimates are off by.
constexpr double of_rounded_factors(double chance, double known, double most_known, double error) {
  const double most = chance * (1 + error);
  const double meant = less(known * known, most_known * most);
  return chance * (1 - error) + (meant > 4 * most ? meant : 0);
}

// Estimates are null where they were not made; each is multiplied by its scale.
struct AtLeastRow {
  int64_t columns = 0;
  const double* y = nullptr;  // with the bias
  const double* bias = nullptr;
  const float* sums = nullptr;
  const float* partial = nullptr;  // of the sums after each block
  const float* partial_squares = nullptr;
  double sums_scale = 0;
  const float* squares = nullptr;  // of the terms
  double squares_scale = 0;
  const float* chance = nullptr;  // variance from the rounding of activations
  double chance_scale = 0;
  const float* known = nullptr;  // and its errors, as they are meant
  double known_scale = 0;
  double deviation = 0;                   // what such an error is at most, in standard deviations
  const double* weight_rounds = nullptr;  // 1 where the rounding of weights counts, else 0
  double of_tiny_weights = 0;             // what rounding does to weights next to nothing
  double* out = nullptr;

  // Of all rows; noise_linear.h has more on those of its names.
  double error = 0;  // share of the sizes of its terms that an estimate is off by
  double n = 0;
  double block_share = 0;  // of the columns that a block has
  double compute = 0;      // units of types
  double handed_on = 0;
  double bias_unit = 0;  // 0: biases are not rounded
  double of_terms = 0;
  double of_weights = 0;  // as a share of the squares
  double of_added = 0;
  double of_small_floats = 0;
};

void write_at_least(const AtLeastRow& row);

// Which of up to 32 elements are further off than `limit` times chance: a bit each.
struct BesideChance {
  int64_t count = 0;
  const double* recorded = nullptr;
  const double* replayed = nullptr;
  const float* chance = nullptr;
  double limit = 0;
};
uint32_t beyond_chance(const BesideChance& elements);

}  // namespace lockstep::parity
