// What rounding does to a product with a weight: exactly, for all elements or some, and at least,
// which costs little.
#pragma once

#include <span>
#include <vector>

#include "parity/noise.h"
#include "parity/rounding.h"

namespace lockstep::parity {

// The tensor cores' sums of 8-bit products keep so many digits.
inline constexpr double kSmallFloatSums = 0x1p-13;
// Terms that tensor cores add at once; digits beyond single precision are then cut off.
inline constexpr double kAddedAtOnce = 16;

class LinearNoise {
 public:
  // Keeps `linear`, `x` and what `arithmetic` refers to.
  LinearNoise(const op::Linear& linear, const Matrix& x, const Arithmetic& arithmetic, int threads);

  // Variances of all elements of `out` = weight · x + bias.
  Matrix all(const Matrix& out) const;

  // Of some, written to their places in `variance`.
  struct Element {
    int64_t row = 0;
    int64_t column = 0;
  };
  void find(std::vector<Element> elements, const Matrix& out, Matrix& variance) const;
  void find_rows(std::span<const int64_t> rows, const Matrix& out, Matrix& variance) const;

  // What they are at least: all but what depends on the digits of single terms
  // (noise_at_least.cpp).
  Matrix at_least(const Matrix& out, Products& products = exec::f64::cpu_products()) const;

  // weight · x + bias, and what its variances are at least, from one decoding of the weight.
  // `actual`: what was recorded, as many columns as there are. Errors that are meant cost the most,
  // and then are looked for only where an element is further off than chance explains. `room`: of a
  // result that is no longer needed.
  struct Evaluated {
    Matrix value;
    Matrix at_least;
    bool all_known = true;  // false: they were
  };
  Evaluated evaluate(Products& products, const Matrix* actual, Evaluated room) const;
  Evaluated evaluate(Products& products = exec::f64::cpu_products(),
                     const Matrix* actual = nullptr) const {
    return evaluate(products, actual, Evaluated());
  }

 private:
  // A row of the weight, decoded.
  struct WeightRow {
    int64_t index = -1;
    std::vector<float> numbers;
    Rounded rounded;            // where weights are rounded
    std::vector<double> terms;  // room for its products

    explicit WeightRow(int64_t columns)
        : numbers(static_cast<size_t>(columns)), terms(numbers.size()) {}
  };

  // What an element's variance is made of, exactly or at least.
  struct Parts {
    double of_sum = 0;
    double squares = 0;     // of the terms
    double of_inputs = 0;   // rounding of activations
    double of_weights = 0;  // and of weights
    double of_scales = 0;
    double vanishing = 0;
  };

  void decode(int64_t index, WeightRow& row) const;
  double exactly(WeightRow& w, int64_t t, double y) const;

  // `y`: the element, with its bias.
  double variance(const Parts& parts, double y, double bias) const {
    const double sum = y - bias;
    double v = parts.of_sum + of_terms_ * parts.squares + handed_on(y, a_) + parts.vanishing +
               parts.of_inputs + parts.of_weights + parts.of_scales + of_added_ * square(sum) +
               of_small_floats_ * (parts.squares / 2 + square(sum) * kThird);
    if (bias != 0 && of_weight_.is_plain()) v += rounded_once(bias, of_weight_.unit);
    return v;
  }

  struct Prepared;
  class AtLeast;
  class RoundedWeights;
  void add_rounded_weights(const Prepared& prepared, Matrix& variance) const;

  const op::Weight& weight_;
  const Matrix& x_;
  const Arithmetic a_;
  const int threads_;
  const Operand of_input_;
  const Operand of_weight_;
  const bool coarse_;  // activations were handed on in a smaller type
  const bool rounds_input_;
  const double n_;                // terms of a sum
  const double of_terms_;         // each product, and the decoding of the weight
  const double of_added_;         // terms that tensor cores add at once
  const double of_small_floats_;  // their sums of 8-bit products
  const bool adding_matters_;     // beside the rounding of activations
  // Factors are rounded as f16 and the like are, by their own size: the squares of the terms tell.
  const bool plain_inputs_;
  const bool plain_weights_;
  Rounded inputs_;
  std::vector<double> bias_;           // by row of the weight
  std::vector<double> input_squares_;  // by row of x
  double largest_weight_ = 0;
};

}  // namespace lockstep::parity
