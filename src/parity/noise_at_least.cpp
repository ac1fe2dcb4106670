// What rounding does to a product with a weight, at least: from whole matrix products in single
// precision, which is enough for an estimate.
#include <algorithm>
#include <cmath>
#include <optional>

#include "exec/f64/panels.h"
#include "parity/noise_linear.h"
#include "parity/rounding.h"

namespace lockstep::parity {
namespace {

using exec::f64::EstimateRows;
using exec::f64::kEstimateBlock;
using exec::f64::kPanel;

Matrix squares_of(const Matrix& matrix) {
  Matrix out = matrix;
  for (double& x : out.values) x *= x;
  return out;
}

// How many times its standard deviation an error of the row is at most.
double largest_deviation(const Rounded& rounded, int64_t row) {
  double largest = 0;
  for (int64_t i = 0; i < rounded.errors.columns; ++i)
    if (const double error = rounded.errors.row(row)[i]; error != 0)
      largest = std::max(largest, std::fabs(error) / std::sqrt(rounded.variances.row(row)[i]));
  return largest;
}

// Sums in single precision are off by less than this share of the sum of their terms' sizes: the
// longest chain of additions has a rounding for each column of a block and one for each block.
double estimate_error(int64_t columns) {
  const auto block = static_cast<double>(kEstimateBlock);
  return 4 * (block + static_cast<double>(columns) / block) * kSingle;
}

}  // namespace

// What is estimated of the elements of a panel, [rows of x, kPanel] each.
struct LinearNoise::Estimates {
  explicit Estimates(int64_t rows) {
    for (std::vector<float>* each : {&sums, &partial, &partial_squares, &squares, &chance, &known,
                                     &weight_chance, &weight_known})
      each->resize(static_cast<size_t>(rows * kPanel));
  }

  std::vector<float> sums;
  std::vector<float> partial;  // of the sums after each block
  std::vector<float> partial_squares;
  std::vector<float> squares;        // of the terms
  std::vector<float> chance;         // variance from the rounding of activations
  std::vector<float> known;          // and its errors, as they are meant
  std::vector<float> weight_chance;  // the same from the rounding of weights
  std::vector<float> weight_known;
  double weight_deviations[kPanel] = {};
};

// The inputs that the estimates are made from.
struct LinearNoise::Prepared {
  explicit Prepared(const LinearNoise& noise)
      : x(noise.x_), squares(squares_of(noise.x_)), error(estimate_error(noise.x_.columns)) {
    if (!noise.rounds_input_) return;
    variances.emplace(noise.inputs_.variances);
    errors.emplace(noise.inputs_.errors);
    for (int64_t t = 0; t < noise.x_.rows; ++t)
      deviations.push_back(largest_deviation(noise.inputs_, t));
  }

  EstimateRows x;
  EstimateRows squares;
  std::optional<EstimateRows> variances;
  std::optional<EstimateRows> errors;
  std::vector<double> deviations;
  double error;
};

double LinearNoise::at_least(const Prepared& prepared, const Estimates& estimates, int64_t row,
                             int64_t place, double y, double bias) const {
  const auto t = static_cast<size_t>(row);
  const auto i = static_cast<size_t>(place);
  const double error = prepared.error;
  const double sum = y - bias;
  Parts parts;
  const double squares = static_cast<double>(estimates.squares[i]) * prepared.squares.scale[t];
  parts.squares = squares * (1 - error);
  double partial = parts.squares / 2 + square(sum) / 3;
  if (x_.columns % kEstimateBlock == 0) {
    // Root mean squares of the partial sums, in the order of the terms and its reverse.
    const double share = static_cast<double>(kEstimateBlock) / n_;
    const double scale = prepared.x.scale[t];
    const double last = static_cast<double>(estimates.sums[i]) * scale;
    const double mean = share * (static_cast<double>(estimates.partial[i]) * scale - last / 2);
    const double mean_squares =
        share *
        (static_cast<double>(estimates.partial_squares[i]) * square(scale) - square(last) / 2);
    const double in_order = std::max(mean_squares, square(last) - 2 * last * mean + mean_squares);
    // No partial sum is off by more than this.
    const double off = 4 * error * std::sqrt(n_ * squares * (1 + error));
    if (in_order > square(off)) partial = std::max(partial, square(std::sqrt(in_order) - off));
  }
  parts.of_sum = square(a_.compute) / 3 * n_ * partial;
  // Of rounded factors: what chance does, and what is meant where that is clearly more.
  const auto of_factors = [&](double chance, double known, double deviation) {
    const double least =
        std::fabs(known) - error * deviation * std::sqrt(n_ * chance * (1 + error));
    const bool meant = least > 0 && square(least) > 4 * chance * (1 + error);
    return chance * (1 - error) + (meant ? square(least) : 0);
  };
  if (rounds_input_)
    parts.of_inputs =
        of_factors(static_cast<double>(estimates.chance[i]) * prepared.variances->scale[t],
                   static_cast<double>(estimates.known[i]) * prepared.errors->scale[t],
                   prepared.deviations[t]);
  if (of_weight_.rounds())
    parts.of_weights =
        of_factors(static_cast<double>(estimates.weight_chance[i]) * prepared.squares.scale[t],
                   static_cast<double>(estimates.weight_known[i]) * prepared.x.scale[t],
                   estimates.weight_deviations[i % kPanel]);
  const double out = variance(parts, y, bias) * (1 - 1e-9);
  return std::isfinite(out) ? out : 0;
}

// Estimates of one panel after another.
class LinearNoise::PanelEstimates {
 public:
  PanelEstimates(const LinearNoise& noise, const Prepared& prepared)
      : noise_(noise), prepared_(prepared), of_(noise.x_.rows), other_(noise.x_.columns) {}

  const Estimates& of(exec::f64::DecodedPanel& panel) {
    panel_.set(panel, false);
    panel_.multiply(prepared_.x, {of_.sums.data(), of_.partial.data(), of_.partial_squares.data()});
    if (noise_.rounds_input_) panel_.multiply(*prepared_.errors, {of_.known.data()});
    panel_.set(panel, true);
    panel_.multiply(prepared_.squares, {of_.squares.data()});
    if (noise_.rounds_input_) panel_.multiply(*prepared_.variances, {of_.chance.data()});
    if (noise_.of_weight_.rounds()) round_weights(panel);
    return of_;
  }

 private:
  void round_weights(const exec::f64::DecodedPanel& panel) {
    std::vector<Rounded> rounded;
    for (int64_t r = 0; r < panel.rows; ++r) {
      rounded.push_back(noise_.weight_row(panel.first_row + r).rounded);
      of_.weight_deviations[r] = largest_deviation(rounded.back(), 0);
    }
    const auto multiply = [&](const Matrix Rounded::*part, const EstimateRows& x, float* sums) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        const std::vector<double>& numbers = (rounded[static_cast<size_t>(r)].*part).values;
        std::ranges::transform(numbers, other_.row(r).begin(), [&](double number) {
          return rounded[static_cast<size_t>(r)].exact ? 0.0F : static_cast<float>(number);
        });
      }
      panel_.set(other_, false);
      panel_.multiply(x, {sums});
    };
    multiply(&Rounded::variances, prepared_.squares, of_.weight_chance.data());
    multiply(&Rounded::errors, prepared_.x, of_.weight_known.data());
  }

  const LinearNoise& noise_;
  const Prepared& prepared_;
  Estimates of_;
  exec::f64::EstimatePanel panel_;
  exec::f64::DecodedPanel other_;
};

Matrix LinearNoise::at_least(const Matrix& out) const {
  const Prepared prepared(*this);
  Matrix variance(out.rows, out.columns);
  const auto make_body = [&]() -> exec::f64::PanelBody {
    return [&, panels = PanelEstimates(*this, prepared)](exec::f64::DecodedPanel& panel) mutable {
      const Estimates& estimates = panels.of(panel);
      for (int64_t t = 0; t < out.rows; ++t)
        for (int64_t i = 0; i < panel.rows; ++i) {
          const int64_t r = panel.first_row + i;
          variance.row(t)[r] = at_least(prepared, estimates, t, t * kPanel + i, out.row(t)[r],
                                        bias_[static_cast<size_t>(r)]);
        }
    };
  };
  exec::f64::for_each_panel(weight_, 2 * x_.rows, threads_, make_body);
  return variance;
}

}  // namespace lockstep::parity
