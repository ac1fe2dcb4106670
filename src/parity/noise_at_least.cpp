// What rounding does to a product with a weight, at least: from whole matrix products in single
// precision, which is enough for an estimate.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "base/parallel.h"
#include "exec/f64/panels.h"
#include "parity/noise_linear.h"
#include "parity/rounding.h"

namespace lockstep::parity {
namespace {

using exec::f64::EstimateRows;
using exec::f64::kEstimateBlock;
using exec::f64::kPanel;

// How many times its standard deviation an error of the row is at most.
double largest_deviation(const Rounded& rounded, int64_t row) {
  double largest = 0;
  for (int64_t i = 0; i < rounded.errors.columns; ++i)
    if (const double error = rounded.errors.row(row)[i]; error != 0)
      largest = std::max(largest, std::fabs(error) / std::sqrt(rounded.variances.row(row)[i]));
  return largest;
}

// Numbers that share a scale have the same variance, so many columns at least.
constexpr int64_t kShared = 32;

// One number for each kShared columns, where all rows have only one there.
std::optional<Matrix> shared_numbers(const Matrix& matrix, int threads) {
  Matrix out(matrix.rows, (matrix.columns + kShared - 1) / kShared);
  std::atomic<bool> shared = true;
  parallel_rows(matrix.rows, matrix.columns, threads, [&](int64_t t) {
    const double* row = matrix.row(t);
    for (int64_t i = 0; i < matrix.columns; ++i) {
      double& first = out.row(t)[i / kShared];
      if (i % kShared == 0) first = row[i];
      if (row[i] != first) shared = false;
    }
  });
  return shared ? std::optional(std::move(out)) : std::nullopt;
}

// At least (sqrt(x) - off)^2, without a root.
double less(double x, double off_squared) {
  constexpr double kShare = 0x1p-10;
  return std::max(0.0, x * (1 - kShare) - off_squared / kShare);
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
  explicit Prepared(const LinearNoise& noise) : error(estimate_error(noise.x_.columns)) {
    if (noise.adding_matters_ || noise.of_weight_.rounds()) {
      x.emplace(noise.x_, false, noise.threads_);
      squares.emplace(noise.x_, true, noise.threads_);
    }
    if (!noise.rounds_input_) return;
    const auto few = shared_numbers(noise.inputs_.variances, noise.threads_);
    shared = few.has_value();
    variances.emplace(shared ? *few : noise.inputs_.variances, false, noise.threads_);
    errors.emplace(noise.inputs_.errors, false, noise.threads_);
    deviations.resize(static_cast<size_t>(noise.x_.rows));
    parallel_rows(noise.x_.rows, 4 * noise.x_.columns, noise.threads_, [&](int64_t t) {
      deviations[static_cast<size_t>(t)] = largest_deviation(noise.inputs_, t);
    });
  }

  std::optional<EstimateRows> x;  // where sums or rounded weights matter
  std::optional<EstimateRows> squares;
  std::optional<EstimateRows> variances;
  bool shared = false;  // one variance for each kShared columns
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
  // Where adding up does next to nothing beside other rounding, it is left out.
  const double squares =
      adding_matters_ ? static_cast<double>(estimates.squares[i]) * prepared.squares->scale[t] : 0;
  parts.squares = squares * (1 - error);
  double partial = parts.squares / 2 + square(sum) * kThird;
  if (adding_matters_ && x_.columns % kEstimateBlock == 0) {
    // Root mean squares of the partial sums, in the order of the terms and its reverse.
    const double share = static_cast<double>(kEstimateBlock) / n_;
    const double scale = prepared.x->scale[t];
    const double last = static_cast<double>(estimates.sums[i]) * scale;
    const double mean = share * (static_cast<double>(estimates.partial[i]) * scale - last / 2);
    const double mean_squares =
        share *
        (static_cast<double>(estimates.partial_squares[i]) * square(scale) - square(last) / 2);
    const double in_order = std::max(mean_squares, square(last) - 2 * last * mean + mean_squares);
    // No partial sum is off by more than 4 errors of all their sizes.
    partial = std::max(partial, less(in_order, square(4 * error) * n_ * squares * (1 + error)));
  }
  parts.of_sum = square(a_.compute) * kThird * n_ * partial;
  // Of rounded factors: what chance does, and what is meant where that is clearly more.
  const auto of_factors = [&](double chance, double known, double deviation) {
    const double most = chance * (1 + error);
    const double meant = less(square(known), square(error * deviation) * n_ * most);
    return chance * (1 - error) + (meant > 4 * most ? meant : 0);
  };
  if (rounds_input_)
    parts.of_inputs =
        of_factors(static_cast<double>(estimates.chance[i]) * prepared.variances->scale[t],
                   static_cast<double>(estimates.known[i]) * prepared.errors->scale[t],
                   prepared.deviations[t]);
  if (of_weight_.rounds())
    parts.of_weights =
        of_factors(static_cast<double>(estimates.weight_chance[i]) * prepared.squares->scale[t],
                   static_cast<double>(estimates.weight_known[i]) * prepared.x->scale[t],
                   estimates.weight_deviations[i % kPanel]);
  const double out = variance(parts, y, bias) * (1 - 1e-9);
  return std::isfinite(out) ? out : 0;
}

// Estimates of one panel after another.
class LinearNoise::PanelEstimates {
 public:
  PanelEstimates(const LinearNoise& noise, const Prepared& prepared)
      : noise_(noise), prepared_(prepared), of_(noise.x_.rows), other_(noise.x_.columns) {}

  // To the panel's columns of `variance`.
  void write(const exec::f64::DecodedPanel& panel, const Matrix& out, Matrix& variance) {
    estimate(panel);
    for (int64_t t = 0; t < out.rows; ++t)
      for (int64_t i = 0; i < panel.rows; ++i) {
        const int64_t r = panel.first_row + i;
        variance.row(t)[r] = noise_.at_least(prepared_, of_, t, t * kPanel + i, out.row(t)[r],
                                             noise_.bias_[static_cast<size_t>(r)]);
      }
  }

 private:
  void estimate(const exec::f64::DecodedPanel& panel) {
    panel_.set(panel, false);
    if (noise_.adding_matters_)
      panel_.multiply(*prepared_.x,
                      {of_.sums.data(), of_.partial.data(), of_.partial_squares.data()});
    if (noise_.rounds_input_) panel_.multiply(*prepared_.errors, {of_.known.data()});
    const bool squares = noise_.adding_matters_ || (noise_.rounds_input_ && !prepared_.shared);
    if (squares) panel_.set(panel, true);
    if (noise_.adding_matters_) panel_.multiply(*prepared_.squares, {of_.squares.data()});
    if (noise_.rounds_input_) {
      if (prepared_.shared) panel_.set_sums_of_squares(panel, kShared);
      panel_.multiply(*prepared_.variances, {of_.chance.data()});
    }
    if (noise_.of_weight_.rounds()) round_weights(panel);
  }

  void round_weights(const exec::f64::DecodedPanel& panel) {
    std::vector<Rounded> rounded;
    WeightRow row(panel.columns);
    for (int64_t r = 0; r < panel.rows; ++r) {
      noise_.decode(panel.first_row + r, row);
      rounded.push_back(row.rounded);
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
    multiply(&Rounded::variances, *prepared_.squares, of_.weight_chance.data());
    multiply(&Rounded::errors, *prepared_.x, of_.weight_known.data());
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
  exec::f64::for_each_panel(weight_, 2 * x_.rows, threads_, [&]() -> exec::f64::PanelBody {
    return [&, panels = PanelEstimates(*this, prepared)](exec::f64::DecodedPanel& panel) mutable {
      panels.write(panel, out, variance);
    };
  });
  return variance;
}

LinearNoise::Evaluated LinearNoise::evaluate() const {
  const exec::f64::PaddedRows x(x_, threads_);
  const bool exact = exec::f64::fit_single_precision(x_, threads_);
  Evaluated out{Matrix(x_.rows, weight_.rows), Matrix(x_.rows, weight_.rows)};
  const Prepared prepared(*this);
  exec::f64::for_each_panel(weight_, 2 * x_.rows, threads_, [&]() -> exec::f64::PanelBody {
    return [&, product = exec::f64::PanelProduct(x, x_.columns, exact, false, out.value),
            panels = PanelEstimates(*this, prepared)](exec::f64::DecodedPanel& panel) mutable {
      product(panel);
      for (int64_t t = 0; t < x_.rows; ++t)
        for (int64_t r = panel.first_row; r < panel.first_row + panel.rows; ++r)
          out.value.row(t)[r] += bias_[static_cast<size_t>(r)];
      panels.write(panel, out.value, out.at_least);
    };
  });
  return out;
}

}  // namespace lockstep::parity
