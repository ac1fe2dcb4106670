// How far two rows of numbers are apart.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::parity {

struct Counts {
  int64_t nan = 0;
  int64_t infinite = 0;
  int64_t negative_zero = 0;
  int64_t denormal = 0;  // in f32

  void add(double value);
  void add(const Counts& other);
};

// Over the elements that are finite on both sides; the others are counted, never averaged away.
struct Metrics {
  int64_t elements = 0;
  int64_t differing = 0;           // other bits, NaN against NaN excepted
  int64_t non_finite_differs = 0;  // a NaN or infinity that only one side has, or another one
  double max_difference = 0;
  int64_t max_index = 0;
  double sum_difference = 0;  // of |a - b|
  double squares_difference = 0;
  double squares_reference = 0;
  double squares_suspect = 0;
  double products = 0;
  int64_t sign_flips = 0;
  Counts reference;
  Counts suspect;

  void add(double reference_value, double suspect_value, int64_t index);
  // A stretch of a row; `first_index`: of its first element. Sums depend on where stretches begin.
  void add(std::span<const double> reference_values, std::span<const double> suspect_values,
           int64_t first_index);
  void add(const Metrics& other);

  bool exact() const { return differing == 0; }
  double mean_difference() const;
  double relative_l2() const;  // |a - b| / |a|
  double nmse() const;         // mean square of a - b over mean square of a
  double cosine() const;
  double magnitude_orders() const;  // log10 of the ratio of the root mean squares

 private:
  bool add_ordinary(const double* reference_values, const double* suspect_values, int64_t index);
};

// What logits are for: the choice of a token.
struct LogitMetrics {
  int32_t reference_choice = 0;
  int32_t suspect_choice = 0;
  double reference_margin = 0;  // between the two largest
  double suspect_margin = 0;
  // Of the suspect's distribution from the reference's, in nats; nothing where a NaN or infinity
  // leaves no distribution.
  std::optional<double> kl_divergence;
  double top10_overlap = 0;
};

LogitMetrics logit_metrics(std::span<const double> reference, std::span<const double> suspect);

}  // namespace lockstep::parity
