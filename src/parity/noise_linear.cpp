// What rounding does to a product with a weight (docs/numerics.md).
#include "parity/noise_linear.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.h"
#include "parity/rounding.h"
#include "parity/summation.h"
#include "parity/term_statistics.h"
#include "quant/decode.h"

namespace lockstep::parity {
namespace {

void decode_weights(const op::Weight& weight, int64_t row, std::vector<float>& floats,
                    std::vector<double>& out) {
  quant::decode(weight.format->format(), weight.row(row), weight.columns, floats.data());
  std::ranges::copy(floats, out.begin());
}

bool is_plain_alone(const Operand& operand) {
  return operand.is_plain() && operand.scale == Scale::kNone;
}

// A scale's own rounding, which all that share it have in common.
double of_scales(const Operand& operand, std::span<const double> terms) {
  if (operand.scale_unit == 0) return 0;
  const auto share = static_cast<size_t>(operand.share(static_cast<int64_t>(terms.size())));
  double out = 0;
  for (size_t first = 0; first < terms.size(); first += share)
    out += rounded_once(sum_of(terms.subspan(first, std::min(share, terms.size() - first))),
                        operand.scale_unit);
  return out;
}

}  // namespace

LinearNoise::LinearNoise(const op::Linear& linear, const Matrix& x, const Arithmetic& arithmetic,
                         int threads)
    : weight_(linear.weight),
      x_(x),
      a_(for_product(arithmetic, weight_)),
      threads_(threads),
      of_input_(activation_operand(a_, weight_)),
      of_weight_(weight_operand(a_, weight_)),
      coarse_(a_.operands() > a_.compute),
      rounds_input_(coarse_ || of_input_.rounds()),
      n_(static_cast<double>(weight_.columns)),
      of_terms_(square(a_.compute) / 3 + (is_quantized(weight_) ? square(kSingle) / 3 : 0)),
      of_added_(rounds_input_ ? square(n_ / kAddedAtOnce * a_.compute) : 0),
      of_small_floats_(of_input_.is_small_float() ? square(kSmallFloatSums) / 3 * n_ : 0),
      adding_matters_(square(std::max(coarse_ ? a_.operands() : 0, of_input_.relative())) <
                      4 * n_ * square(a_.compute)),
      plain_inputs_(rounds_input_ && (!of_input_.rounds() || is_plain_alone(of_input_))),
      plain_weights_(rounds_input_ && is_plain_alone(of_weight_)),
      inputs_(x.rows, x.columns),
      bias_(static_cast<size_t>(weight_.rows)) {
  for (const Operand& operand : {coarse_ ? plain_operand(a_.operands()) : Operand(), of_input_}) {
    if (!operand.rounds()) continue;
    const double of_all =
        operand.scale == Scale::kTensor && a_.largest.empty() ? largest_of(x.values) : 0;
    parallel_rows(x.rows, 4 * x.columns, threads, [&](int64_t t) {
      const double largest = a_.largest.empty() ? of_all : a_.largest[static_cast<size_t>(t)];
      inputs_.add(operand, {x.row(t), static_cast<size_t>(x.columns)}, t, largest);
    });
  }
  if (of_weight_.scale == Scale::kTensor) largest_weight_ = largest_of_weight(weight_, threads);
  if (linear.bias) {
    std::vector<float> floats(bias_.size());
    decode_weights(*linear.bias, 0, floats, bias_);
  }
  input_squares_.resize(static_cast<size_t>(x.rows));
  parallel_rows(x.rows, x.columns, threads, [&](int64_t t) {
    input_squares_[static_cast<size_t>(t)] =
        sum_of_squares({x.row(t), static_cast<size_t>(x.columns)});
  });
}

void LinearNoise::decode(int64_t index, WeightRow& row) const {
  row.index = index;
  quant::decode(weight_.format->format(), weight_.row(index), weight_.columns, row.numbers.data());
  if (!of_weight_.rounds() || plain_weights_) return;
  row.rounded = Rounded(1, weight_.columns);
  row.rounded.add(of_weight_, std::vector<double>(row.numbers.begin(), row.numbers.end()), 0,
                  largest_weight_);
}

double LinearNoise::exactly(WeightRow& w, int64_t t, double y) const {
  const double* xt = x_.row(t);
  const double bias = bias_[static_cast<size_t>(w.index)];
  const ProductSums sums =
      multiply(w.numbers, xt, rounds_input_ ? inputs_.variances.row(t) : nullptr,
               inputs_.errors.row(t), y - bias, a_.compute, w.terms);
  const auto [of_sum, squares] =
      noise_of_sum(w.terms, y - bias, sums.of_terms, a_.compute, bias, false);
  Parts parts{.of_sum = of_sum, .squares = squares};
  parts.vanishing =
      of_vanishing(n_, sums.weight_squares, input_squares_[static_cast<size_t>(t)], a_.compute);
  if (rounds_input_) parts.of_inputs = with_known(sums.chance, sums.known);
  if (plain_weights_) {
    const PlainErrors errors = plain_errors(of_weight_, w.numbers, xt);
    const double chance = (square(of_weight_.unit) * squares +
                           square(of_weight_.tiny()) * input_squares_[static_cast<size_t>(t)]) /
                          3;
    if (!errors.exact) parts.of_weights = with_known(chance, errors.known);
  } else if (!w.rounded.exact) {
    parts.of_weights = of_rounded(w.rounded, 0, 0, {xt, w.terms.size()});
  }
  parts.of_scales =
      of_scales(of_input_, w.terms) + (w.rounded.exact ? 0 : of_scales(of_weight_, w.terms));
  return variance(parts, y, bias);
}

void LinearNoise::find(std::vector<Element> elements, const Matrix& out, Matrix& variance) const {
  std::ranges::stable_sort(elements, {}, &Element::column);
  const auto some = [&](int64_t begin, int64_t end) {
    WeightRow w(weight_.columns);
    for (int64_t i = begin; i < end; ++i) {
      const auto [t, r] = elements[static_cast<size_t>(i)];
      if (w.index != r) decode(r, w);
      variance.row(t)[r] = exactly(w, t, out.row(t)[r]);
    }
  };
  parallel_for(std::ssize(elements), std::max<int64_t>(1, 50'000 / weight_.columns), some,
               threads_);
}

void LinearNoise::find_rows(std::span<const int64_t> rows, const Matrix& out,
                            Matrix& variance) const {
  if (rows.empty()) return;
  const auto some = [&](int64_t begin, int64_t end) {
    WeightRow w(weight_.columns);
    for (int64_t r = begin; r < end; ++r) {
      decode(r, w);
      for (const int64_t t : rows) variance.row(t)[r] = exactly(w, t, out.row(t)[r]);
    }
  };
  const int64_t work_a_row = 2 * weight_.columns * std::ssize(rows);
  parallel_for(out.columns, std::max<int64_t>(1, 200'000 / work_a_row), some, threads_);
}

Matrix LinearNoise::all(const Matrix& out) const {
  std::vector<int64_t> rows(static_cast<size_t>(out.rows));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  Matrix variance(out.rows, out.columns);
  find_rows(rows, out, variance);
  return variance;
}

double largest_of_weight(const op::Weight& weight, int threads) {
  std::vector<double> largest(static_cast<size_t>(weight.rows));
  const auto rows = [&](int64_t begin, int64_t end) {
    std::vector<float> floats(static_cast<size_t>(weight.columns));
    std::vector<double> w(floats.size());
    for (int64_t r = begin; r < end; ++r) {
      decode_weights(weight, r, floats, w);
      largest[static_cast<size_t>(r)] = largest_of(w);
    }
  };
  parallel_for(weight.rows, std::max<int64_t>(1, 200'000 / weight.columns), rows, threads);
  return largest_of(largest);
}

}  // namespace lockstep::parity
