// What rounding does to a product with a weight (docs/numerics.md).
#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "parity/noise.h"
#include "parity/rounding.h"
#include "parity/summation.h"
#include "parity/term_statistics.h"
#include "quant/decode.h"

namespace lockstep::parity {
namespace {

// The tensor cores' sums of 8-bit products keep so many digits.
constexpr double kSmallFloatSums = 0x1p-13;
// Terms that tensor cores add at once; digits beyond single precision are then cut off.
constexpr double kAddedAtOnce = 16;

void decode_weights(const op::Weight& weight, int64_t row, std::vector<float>& floats,
                    std::vector<double>& out) {
  quant::decode(weight.format->format(), weight.row(row), weight.columns, floats.data());
  std::ranges::copy(floats, out.begin());
}

// A scale's own rounding, which all that share it have in common.
double of_scales(const Operand& operand, std::span<const double> terms) {
  if (operand.scale_unit == 0) return 0;
  const auto share = static_cast<size_t>(operand.share(static_cast<int64_t>(terms.size())));
  double out = 0;
  for (size_t first = 0; first < terms.size(); first += share) {
    double sum = 0;
    for (const double term : terms.subspan(first, std::min(share, terms.size() - first)))
      sum += term;
    out += rounded_once(sum, operand.scale_unit);
  }
  return out;
}

struct LinearNoise {
  const op::Linear& linear;
  const Matrix& x;
  const Matrix& out;
  const Arithmetic& a;
  Matrix& variance;
  const op::Weight& weight = linear.weight;
  Operand of_input = activation_operand(a, weight);
  Operand of_weight = weight_operand(a, weight);
  bool coarse = a.operands() > a.compute;  // activations were handed on in a smaller type
  Rounded inputs{};
  std::vector<double> bias{};
  std::vector<double> input_squares{};
  double largest_weight = 0;

  void prepare(int threads) {
    inputs = Rounded(x.rows, x.columns);
    for (const Operand& operand : {coarse ? plain_operand(a.operands()) : Operand(), of_input})
      for (int64_t t = 0; t < x.rows && operand.rounds(); ++t) {
        const std::span<const double> row(x.row(t), static_cast<size_t>(x.columns));
        const double largest = operand.scale != Scale::kTensor ? 0
                               : a.largest.empty()             ? largest_of(x.values)
                                                               : a.largest[static_cast<size_t>(t)];
        inputs.add(operand, row, t, largest);
      }
    if (of_weight.scale == Scale::kTensor) largest_weight = largest_of_weight(weight, threads);
    bias.resize(static_cast<size_t>(out.columns));
    if (linear.bias) {
      std::vector<float> floats(bias.size());
      decode_weights(*linear.bias, 0, floats, bias);
    }
    for (int64_t t = 0; t < x.rows; ++t)
      input_squares.push_back(sum_of_squares({x.row(t), static_cast<size_t>(x.columns)}));
  }

  void rows(int64_t begin, int64_t end) const {
    const auto columns = static_cast<size_t>(weight.columns);
    const auto n = static_cast<double>(weight.columns);
    std::vector<float> floats(columns);
    std::vector<double> w(columns);
    std::vector<double> terms(columns);
    const bool rounds_input = coarse || of_input.rounds();
    // Each product, and the decoding of the weight.
    const double of_terms =
        square(a.compute) / 3 + (is_quantized(weight) ? square(kSingle) / 3 : 0);
    for (int64_t r = begin; r < end; ++r) {
      decode_weights(weight, r, floats, w);
      const double weight_squares = sum_of_squares(w);
      Rounded weights;
      if (of_weight.rounds()) {
        weights = Rounded(1, weight.columns);
        weights.add(of_weight, w, 0, largest_weight);
      }
      const double b = bias[static_cast<size_t>(r)];
      for (int64_t t = 0; t < out.rows; ++t) {
        const double* xt = x.row(t);
        multiply(w, xt, terms);
        const auto [of_sum, squares] = noise_of_sum(terms, a.compute, b);
        const double y = out.row(t)[r];
        const double sum = y - b;
        double v =
            of_sum + of_terms * squares + handed_on(y, a) +
            of_vanishing(n, weight_squares, input_squares[static_cast<size_t>(t)], a.compute);
        if (rounds_input) v += of_rounded(inputs, t, 0, w);
        if (!weights.exact) v += of_rounded(weights, 0, 0, {xt, columns});
        v += of_scales(of_input, terms) + (weights.exact ? 0 : of_scales(of_weight, terms));
        if (rounds_input) v += square(n / kAddedAtOnce * a.compute * sum);
        if (of_input.is_small_float())
          v += square(kSmallFloatSums) / 3 * n * (squares / 2 + square(sum) / 3);
        if (b != 0 && of_weight.is_plain()) v += rounded_once(b, of_weight.unit);
        variance.row(t)[r] = v;
      }
    }
  }
};

}  // namespace

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

void linear_variance(const op::Linear& linear, const Matrix& x, const Matrix& out,
                     const Arithmetic& a, int threads, Matrix& variance) {
  LinearNoise noise{linear, x, out, a, variance};
  noise.prepare(threads);
  const int64_t work_a_row = 2 * linear.weight.columns * out.rows;
  parallel_for(
      out.columns, std::max<int64_t>(1, 200'000 / work_a_row),
      [&](int64_t begin, int64_t end) { noise.rows(begin, end); }, threads);
}

double guaranteed_bound(const op::Linear& linear, std::span<const double> x, int64_t index,
                        const Arithmetic& a) {
  const op::Weight& weight = linear.weight;
  std::vector<float> floats(static_cast<size_t>(weight.columns));
  std::vector<double> w(floats.size());
  decode_weights(weight, index, floats, w);
  double absolute = 0;
  for (size_t i = 0; i < w.size(); ++i) absolute += std::fabs(w[i] * x[i]);
  // A whole step of whole numbers, two units of floating point, or what is known.
  const auto of_factor = [](const Operand& operand, std::span<const double> numbers,
                            std::span<const double> others, double largest) {
    if (!operand.rounds()) return 0.0;
    Rounded rounded(1, static_cast<int64_t>(numbers.size()));
    rounded.add(operand, numbers, 0, largest);
    double sum = 0;
    for (size_t i = 0; i < numbers.size(); ++i)
      sum += std::fabs(others[i]) *
             (2 * std::sqrt(3 * rounded.variances.values[i]) + std::fabs(rounded.errors.values[i]) +
              operand.scale_unit * std::fabs(numbers[i]));
    return sum;
  };
  const Operand of_input = activation_operand(a, weight);
  const Operand of_weight = weight_operand(a, weight);
  const double largest_weight =
      of_weight.scale == Scale::kTensor ? largest_of_weight(weight, 1) : 0;
  const double largest_input = a.largest.empty() ? largest_of(x) : largest_of(a.largest);
  const double n = static_cast<double>(weight.columns) + 1;
  const double operands = a.operands() > a.compute ? 2 * a.operands() : 0;
  const double sums = of_input.is_small_float() ? std::max(a.compute, kSmallFloatSums) : a.compute;
  return (n * sums + operands + a.stored + kSingle) * absolute +
         of_factor(of_input, x, w, largest_input) + of_factor(of_weight, w, x, largest_weight);
}

}  // namespace lockstep::parity
