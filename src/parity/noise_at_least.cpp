// What rounding does to a product with a weight, at least: from whole matrix products in single
// precision, which is enough for an estimate.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <optional>

#include "base/parallel.h"
#include "exec/f64/products.h"
#include "parity/at_least_row.h"
#include "parity/noise_linear.h"
#include "parity/rounding.h"
#include "quant/decode.h"

namespace lockstep::parity {
namespace {

using exec::f64::EstimateRows;
using exec::f64::Factor;
using exec::f64::kEstimateBlock;
using exec::f64::kPanel;
using exec::f64::kSummedSquares;

// One number for each kSummedSquares columns, where all rows have only one there: numbers that
// share a scale have the same variance, so many columns at least.
std::optional<Matrix> shared_numbers(const Matrix& matrix, int threads) {
  Matrix out(matrix.rows, (matrix.columns + kSummedSquares - 1) / kSummedSquares);
  std::atomic<bool> shared = true;
  parallel_rows(matrix.rows, matrix.columns, threads, [&](int64_t t) {
    const double* row = matrix.row(t);
    for (int64_t first = 0; first < matrix.columns && shared; first += kSummedSquares) {
      const double number = out.row(t)[first / kSummedSquares] = row[first];
      const double* const end = row + std::min(first + kSummedSquares, matrix.columns);
      if (!std::all_of(row + first, end, [&](double each) { return each == number; }))
        shared = false;
    }
  });
  return shared ? std::optional(std::move(out)) : std::nullopt;
}

// By row of a weight: 1 where a number of it is rounded, else 0. The first is, or none is, as a
// rule.
std::vector<double> rounded_rows(const op::Weight& weight, const Operand& operand, int threads) {
  std::vector<double> out(static_cast<size_t>(weight.rows));
  const int64_t block = weight.format->block_values;
  const int64_t step = std::max<int64_t>(block, 256 / block * block);
  const auto some = [&](int64_t begin, int64_t end) {
    std::vector<float> numbers(static_cast<size_t>(step));
    for (int64_t r = begin; r < end; ++r)
      for (int64_t first = 0; first < weight.columns; first += step) {
        const int64_t count = std::min(step, weight.columns - first);
        quant::decode(weight.format->format(),
                      weight.row(r) + first / block * weight.format->block_bytes, count,
                      numbers.data());
        if (!rounds_any(operand, std::span(numbers).first(static_cast<size_t>(count)))) continue;
        out[static_cast<size_t>(r)] = 1;
        break;
      }
  };
  parallel_for(weight.rows, 64, some, threads);
  return out;
}

// Sums in single precision are off by less than this share of the sum of their terms' sizes: the
// longest chain of additions has a rounding for each column of a block and one for each block.
double estimate_error(int64_t columns) {
  const auto block = static_cast<double>(kEstimateBlock);
  return 4 * (block + static_cast<double>(columns) / block) * kSingle;
}

}  // namespace

// The inputs that the estimates are made from.
struct LinearNoise::Prepared {
  explicit Prepared(const LinearNoise& noise) : error(estimate_error(noise.x_.columns)) {
    const bool weights_apart = noise.of_weight_.rounds() && !noise.plain_weights_;
    if (noise.adding_matters_ || weights_apart) x.emplace(noise.x_, false, noise.threads_);
    if (noise.adding_matters_ || noise.of_weight_.rounds() || noise.plain_inputs_)
      squares.emplace(noise.x_, true, noise.threads_);
    if (noise.plain_weights_)
      weight_rounds = rounded_rows(noise.weight_, noise.of_weight_, noise.threads_);
    if (!noise.rounds_input_) return;
    if (!noise.plain_inputs_) {
      const auto few = shared_numbers(noise.inputs_.variances, noise.threads_);
      shared = few.has_value();
      variances.emplace(shared ? *few : noise.inputs_.variances, false, noise.threads_);
    }
    errors.emplace(noise.inputs_.errors, false, noise.threads_);
    deviations.resize(static_cast<size_t>(noise.x_.rows));
    parallel_rows(noise.x_.rows, 4 * noise.x_.columns, noise.threads_, [&](int64_t t) {
      deviations[static_cast<size_t>(t)] = largest_deviation(noise.inputs_, t);
    });
  }

  std::optional<EstimateRows> x;  // where sums or rounded weights matter
  std::optional<EstimateRows> squares;
  std::optional<EstimateRows> variances;  // where the squares do not tell
  bool shared = false;                    // one variance for each kSummedSquares columns
  std::optional<EstimateRows> errors;
  std::vector<double> deviations;
  std::vector<double> weight_rounds;  // by row of the weight; empty: found apart, or not at all
  double error;
};

// The estimates that are asked for, and rows of what is at least made of them.
class LinearNoise::AtLeast {
 public:
  // `actual`: null where all errors that are meant are wanted.
  AtLeast(const LinearNoise& noise, const Prepared& prepared, const Matrix* actual = nullptr)
      : noise_(noise), prepared_(prepared), actual_(actual) {
    if (noise.adding_matters_) sums_ = add({Factor::kWeights, &*prepared.x, true});
    if (noise.rounds_input_)
      known_ = add({.factor = Factor::kWeights, .x = &*prepared.errors, .few = actual != nullptr});
    if (noise.adding_matters_ || noise.plain_weights_ || noise.plain_inputs_)
      squares_ = add({Factor::kSquares, &*prepared.squares});
    if (noise.plain_inputs_)
      chance_ = squares_;
    else if (noise.rounds_input_)
      chance_ =
          add({prepared.shared ? Factor::kSumsOfSquares : Factor::kSquares, &*prepared.variances});
  }

  const std::vector<exec::f64::Estimate>& estimates() const { return estimates_; }

  // Of the part's rows and columns; `out` has the biases.
  void write(const exec::f64::Part& part, const Matrix& out, Matrix& variance) const {
    const float* some_known = nullptr;
    if (known_ >= 0 && part.estimates[static_cast<size_t>(known_)].sum == nullptr)
      some_known = find_known(part, out);
    for (int64_t t = part.first_row; t < part.first_row + part.rows; ++t) {
      const int64_t place = (t - part.first_row) * part.stride;
      AtLeastRow row = of_row(t);
      row.columns = part.columns;
      row.y = out.row(t) + part.first_column;
      row.bias = noise_.bias_.data() + part.first_column;
      row.out = variance.row(t) + part.first_column;
      if (sums_ >= 0) {
        const exec::f64::EstimatedSums& sums = part.estimates[static_cast<size_t>(sums_)];
        // Blocks of one size: their sums are then evenly spaced.
        if (noise_.x_.columns % kEstimateBlock == 0) {
          row.sums = sums.sum + place;
          row.partial = sums.partial + place;
          row.partial_squares = sums.partial_squares + place;
        }
      }
      if (squares_ >= 0) row.squares = part.estimates[static_cast<size_t>(squares_)].sum + place;
      if (noise_.plain_weights_)
        row.weight_rounds = prepared_.weight_rounds.data() + part.first_column;
      if (chance_ >= 0) {
        row.chance = part.estimates[static_cast<size_t>(chance_)].sum + place;
        const float* known = part.estimates[static_cast<size_t>(known_)].sum;
        row.known = known != nullptr ? known + place : some_known + t * kPanel;
      }
      write_at_least(row);
    }
  }

  bool all_known() const { return all_known_; }

 private:
  // What is meant counts from two standard deviations on. Where it makes up the error, as it does
  // in engines that round as they say, it does not count where the error is less. [rows, kPanel],
  // 0 where it was not looked for; the part has all rows. Until the thread's next call.
  const float* find_known(const exec::f64::Part& part, const Matrix& out) const {
    constexpr double kNearlyCounts = 3.5;  // variances of chance
    if (all_known_) all_known_ = false;
    const float* chance = part.estimates[static_cast<size_t>(chance_)].sum;
    const int64_t columns = std::min(part.columns, actual_->columns - part.first_column);
    // By column: where it may count. Panels are many and small: their room is kept.
    thread_local std::vector<int64_t> rows[kPanel];
    thread_local std::vector<float> known;
    for (std::vector<int64_t>& of_column : rows) of_column.clear();
    known.assign(static_cast<size_t>(part.rows * kPanel), 0.0F);
    for (int64_t t = 0; t < part.rows; ++t) {
      uint32_t beyond = beyond_chance({.count = columns,
                                       .recorded = actual_->row(t) + part.first_column,
                                       .replayed = out.row(t) + part.first_column,
                                       .chance = chance + t * part.stride,
                                       .limit = kNearlyCounts * of_row(t).chance_scale});
      for (; beyond != 0; beyond &= beyond - 1) rows[std::countr_zero(beyond)].push_back(t);
    }
    for (int64_t i = 0; i < columns; ++i)
      exec::f64::estimate_few(*part.panel, i, *prepared_.errors, rows[i], known.data());
    return known.data();
  }

  // Chance's share of the squares of the terms. What it does to inputs next to nothing is left out.
  double of_plain_inputs() const {
    return (square(noise_.coarse_ ? plain_operand(noise_.a_.operands()).unit : 0) +
            square(noise_.of_input_.unit)) /
           3;
  }

  int add(const exec::f64::Estimate& estimate) {
    estimates_.push_back(estimate);
    return static_cast<int>(estimates_.size()) - 1;
  }

  AtLeastRow of_row(int64_t row) const {
    const auto t = static_cast<size_t>(row);
    AtLeastRow out;
    if (sums_ >= 0) out.sums_scale = prepared_.x->scale[t];
    if (squares_ >= 0) out.squares_scale = prepared_.squares->scale[t];
    if (noise_.plain_weights_) {
      out.of_weights = square(noise_.of_weight_.unit) / 3;
      out.of_tiny_weights = square(noise_.of_weight_.tiny()) / 3 * noise_.input_squares_[t];
    }
    if (chance_ >= 0) {
      out.chance_scale = noise_.plain_inputs_ ? out.squares_scale * of_plain_inputs()
                                              : prepared_.variances->scale[t];
      out.known_scale = prepared_.errors->scale[t];
      out.deviation = prepared_.deviations[t];
    }
    out.error = prepared_.error;
    out.n = noise_.n_;
    out.block_share = static_cast<double>(kEstimateBlock) / noise_.n_;
    out.compute = noise_.a_.compute;
    out.handed_on = std::max(noise_.a_.activations, noise_.a_.stored);
    out.bias_unit = noise_.of_weight_.is_plain() ? noise_.of_weight_.unit : 0;
    out.of_terms = noise_.of_terms_;
    out.of_added = noise_.of_added_;
    out.of_small_floats = noise_.of_small_floats_;
    return out;
  }

  const LinearNoise& noise_;
  const Prepared& prepared_;
  const Matrix* actual_;
  std::vector<exec::f64::Estimate> estimates_;
  int sums_ = -1;  // indices of estimates; -1: not asked for
  int squares_ = -1;
  int chance_ = -1;
  int known_ = -1;
  mutable std::atomic<bool> all_known_ = true;
};

// What the rounding of weights does at least, one panel after another.
class LinearNoise::RoundedWeights {
 public:
  RoundedWeights(const LinearNoise& noise, const Prepared& prepared)
      : noise_(noise),
        prepared_(prepared),
        other_(noise.x_.columns),
        chance_(static_cast<size_t>(noise.x_.rows * kPanel)),
        known_(chance_.size()) {}

  // To the panel's columns of `variance`.
  void add(const exec::f64::DecodedPanel& panel, Matrix& variance) {
    std::vector<Rounded> rounded;
    WeightRow row(panel.columns);
    double deviations[kPanel] = {};
    for (int64_t r = 0; r < panel.rows; ++r) {
      noise_.decode(panel.first_row + r, row);
      rounded.push_back(row.rounded);
      deviations[r] = largest_deviation(rounded.back(), 0);
    }
    const auto multiply = [&](const Matrix Rounded::*part, const EstimateRows& x, float* sums) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        const std::vector<double>& numbers = (rounded[static_cast<size_t>(r)].*part).values;
        std::ranges::transform(numbers, other_.row(r).begin(), [&](double number) {
          return rounded[static_cast<size_t>(r)].exact ? 0.0F : static_cast<float>(number);
        });
      }
      panel_.set(other_);
      panel_.multiply(x, {sums});
    };
    multiply(&Rounded::variances, *prepared_.squares, chance_.data());
    multiply(&Rounded::errors, *prepared_.x, known_.data());
    for (int64_t t = 0; t < noise_.x_.rows; ++t)
      for (int64_t r = 0; r < panel.rows; ++r) {
        const auto place = static_cast<size_t>(t * kPanel + r);
        const auto scaled = [&](float sum, const EstimateRows& x) {
          return static_cast<double>(sum) * x.scale[static_cast<size_t>(t)];
        };
        const double least = of_rounded_factors(scaled(chance_[place], *prepared_.squares),
                                                scaled(known_[place], *prepared_.x),
                                                of_known(deviations[r], noise_.n_, prepared_.error),
                                                prepared_.error) *
                             (1 - 1e-9);
        if (std::isfinite(least)) variance.row(t)[panel.first_row + r] += least;
      }
  }

 private:
  const LinearNoise& noise_;
  const Prepared& prepared_;
  exec::f64::EstimatePanel panel_;
  exec::f64::DecodedPanel other_;
  std::vector<float> chance_;
  std::vector<float> known_;
};

void LinearNoise::add_rounded_weights(const Prepared& prepared, Matrix& variance) const {
  if (!of_weight_.rounds() || plain_weights_) return;
  exec::f64::for_each_panel(weight_, 2 * x_.rows, threads_, [&]() -> exec::f64::PanelBody {
    const auto panels = std::make_shared<RoundedWeights>(*this, prepared);
    return [&, panels](exec::f64::DecodedPanel& panel) { panels->add(panel, variance); };
  });
}

Matrix LinearNoise::at_least(const Matrix& out, Products& products) const {
  const Prepared prepared(*this);
  const AtLeast at_least(*this, prepared);
  Matrix variance(out.rows, out.columns);
  const auto take = [&](const exec::f64::Part& part) { at_least.write(part, out, variance); };
  // Where nothing is estimated, the results alone tell.
  if (at_least.estimates().empty())
    take({.rows = out.rows, .columns = out.columns});
  else
    products.run({.weight = weight_, .estimates = at_least.estimates()}, threads_, take);
  add_rounded_weights(prepared, variance);
  return variance;
}

LinearNoise::Evaluated LinearNoise::evaluate(Products& products, const Matrix* actual,
                                             Evaluated room) const {
  Evaluated out = std::move(room);
  out.value.reshape(x_.rows, weight_.rows);
  out.at_least.reshape(x_.rows, weight_.rows);
  const Prepared prepared(*this);
  const AtLeast at_least(*this, prepared, actual);
  // Whoever computes in single precision is off by far more than the order of sums makes out.
  const bool quick = a_.compute >= unit(DType::kF32);
  products.run({.weight = weight_, .x = &x_, .estimates = at_least.estimates(), .quick = quick},
               threads_, [&](const exec::f64::Part& part) {
                 for (int64_t t = 0; t < part.rows; ++t) {
                   const double* product = part.product + t * part.stride;
                   const double* bias = bias_.data() + part.first_column;
                   double* value = out.value.row(part.first_row + t) + part.first_column;
                   for (int64_t i = 0; i < part.columns; ++i) value[i] = product[i] + bias[i];
                 }
                 at_least.write(part, out.value, out.at_least);
               });
  add_rounded_weights(prepared, out.at_least);
  out.all_known = at_least.all_known();
  return out;
}

}  // namespace lockstep::parity
