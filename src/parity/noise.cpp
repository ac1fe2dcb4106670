#include "parity/noise.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/parallel.h"
#include "op/rope.h"
#include "parity/rounding.h"
#include "parity/slope.h"
#include "quant/decode.h"

namespace lockstep::parity {
namespace {

struct Call {
  std::span<const Matrix* const> inputs;
  const Matrix& out;
  const Place& place;
  const Arithmetic& a;
  int threads;
  Matrix& variance;

  const Matrix& input(size_t index) const { return *inputs[index]; }

  template <class F>
  void each(const F& f) const {
    for (size_t i = 0; i < out.values.size(); ++i) variance.values[i] = f(i);
  }

  // A table's rows are copied, perhaps through a smaller type; decoding rounds to single precision.
  void operator()(const op::Embed& embed) const {
    const double decoded = is_quantized(embed.table) ? kSingle : 0;
    each([&](size_t i) {
      return handed_on(out.values[i], a) + rounded_once(out.values[i], decoded);
    });
  }

  void operator()(const op::Norm& norm) const {
    const auto n = static_cast<double>(norm.group);
    const bool layer = norm.kind == op::Norm::Kind::kLayer;
    std::vector<float> weight(static_cast<size_t>(norm.group));
    quant::decode(norm.weight.format->format(), norm.weight.row(0), norm.group, weight.data());
    for (int64_t t = 0; t < out.rows; ++t)
      for (int64_t first = 0; first < out.columns; first += norm.group) {
        const double* x = input(0).row(t) + first;
        double sum = 0;
        double squares = 0;
        for (int64_t i = 0; i < norm.group; ++i) sum += x[i];
        const double mean = layer ? sum / n : 0;
        for (int64_t i = 0; i < norm.group; ++i) squares += square(x[i] - mean);
        double fourths = 0;
        for (int64_t i = 0; i < norm.group; ++i) fourths += square(square(x[i] - mean));
        const double plain_squares = squares + n * square(mean);
        const double total = squares / n + norm.epsilon;
        const double factor = 1 / std::sqrt(total);
        // The sum of squares is off by a relative error, its root by half of that; then a division,
        // a root and the constant's own rounding.
        const double of_inputs = a.operands() > a.compute ? square(a.operands()) / 3 : 0;
        const double of_factor =
            (summed(n, squares, fourths, a.compute) + 4 * fourths * of_inputs) / square(n * total) /
                4 +
            4 * square(a.compute) + rounded_once(norm.epsilon / total, kSingle) / 4;
        // The mean is off by an absolute error, which all elements share; an engine that takes
        // E[x^2] - E[x]^2 for the variance loses what the two have in common.
        const double of_mean = layer ? summed(n, sum, plain_squares, a.compute) / square(n) +
                                           rounded_once(mean, a.compute)
                                     : 0;
        const double of_cancellation =
            layer ? square(square(mean) / total) * square(a.compute) * (n / 9 + 4) / 4 : 0;
        for (int64_t i = 0; i < norm.group; ++i) {
          const double w = static_cast<double>(weight[static_cast<size_t>(i)]);
          const double scaled = (x[i] - mean) * factor * w;
          const double y = out.row(t)[first + i];
          variance.row(t)[first + i] =
              square(scaled) * (of_factor + of_cancellation) + square(factor * w) * of_mean +
              square(factor * w) * (rounded_once(std::fabs(x[i]) + std::fabs(mean), a.compute) * 2 +
                                    of_operand(x[i], a)) +
              rounded_once(scaled, std::max(a.activations, a.compute)) + handed_on(y, a);
        }
      }
  }

  void operator()(const op::Linear& linear) const {
    const op::Weight& weight = linear.weight;
    const int64_t block = activation_block(weight, a.levels);
    const Rounded rounded = block > 0 ? round_to_levels(block) : Rounded();
    // Engines with 8-bit activations multiply half-precision weights with half-precision ones.
    double operands = a.operands();
    if (a.levels == kInt8Levels && weight.format->format() == quant::Format::kF16)
      operands = unit(DType::kF16);
    if (a.levels == kInt8Levels && weight.format->format() == quant::Format::kBF16)
      operands = unit(DType::kBF16);
    const bool coarse = operands > a.compute;
    // Both operands, each product, and the decoding of the weight.
    const double of_terms = (coarse ? 2 * square(operands) / 3 : 0) + square(a.compute) / 3 +
                            (is_quantized(weight) ? square(kSingle) / 3 : 0);
    const auto n = static_cast<double>(weight.columns);
    const auto rows = [&](int64_t begin, int64_t end) {
      std::vector<float> w(static_cast<size_t>(weight.columns));
      for (int64_t r = begin; r < end; ++r) {
        quant::decode(weight.format->format(), weight.row(r), weight.columns, w.data());
        double weight_squares = 0;
        for (const float wi : w) weight_squares += square(static_cast<double>(wi));
        for (int64_t t = 0; t < out.rows; ++t) {
          const double* x = input(0).row(t);
          double squares = 0;
          for (int64_t i = 0; i < weight.columns; ++i)
            squares += square(static_cast<double>(w[static_cast<size_t>(i)]) * x[i]);
          const double y = out.row(t)[r];
          variance.row(t)[r] = summed(n, y, squares, a.compute) + of_terms * squares +
                               (coarse ? weight_squares * square(tiny(operands)) / 3 : 0) +
                               (block > 0 ? levels_variance(rounded, block, w, x, t) : 0) +
                               handed_on(y, a);
        }
      }
    };
    const int64_t work_a_row = 2 * weight.columns * out.rows;
    parallel_for(out.columns, std::max<int64_t>(1, 200'000 / work_a_row), rows, threads);
  }

  // Activations rounded to whole numbers times a scale for each block.
  struct Rounded {
    Matrix steps;   // [rows, blocks]
    Matrix errors;  // [rows, columns] rounded - exact
  };

  Rounded round_to_levels(int64_t block) const {
    const Matrix& x = input(0);
    Rounded rounded{Matrix(x.rows, (x.columns + block - 1) / block), Matrix(x.rows, x.columns)};
    for (int64_t t = 0; t < x.rows; ++t)
      for (int64_t b = 0; b < rounded.steps.columns; ++b) {
        const int64_t end = std::min(x.columns, (b + 1) * block);
        double largest = 0;
        for (int64_t i = b * block; i < end; ++i)
          largest = std::max(largest, std::fabs(x.row(t)[i]));
        const double step = rounded.steps.row(t)[b] = largest / static_cast<double>(a.levels);
        for (int64_t i = b * block; i < end && step > 0; ++i)
          rounded.errors.row(t)[i] = step * std::nearbyint(x.row(t)[i] / step) - x.row(t)[i];
      }
    return rounded;
  }

  // Rounding spread evenly over a step; what this rounding does, exactly (beside one huge number
  // all others of a block may be lost, which is no chance); a scale that 8-bit engines keep in half
  // precision, whose error the whole block shares.
  double levels_variance(const Rounded& rounded, int64_t block, const std::vector<float>& w,
                         const double* x, int64_t t) const {
    double spread = 0;
    double error = 0;
    double of_scales = 0;
    const auto columns = static_cast<int64_t>(w.size());
    for (int64_t b = 0; b < rounded.steps.columns; ++b) {
      double squares = 0;
      double sum = 0;
      for (int64_t i = b * block; i < std::min(columns, (b + 1) * block); ++i) {
        const double wi = static_cast<double>(w[static_cast<size_t>(i)]);
        squares += square(wi);
        sum += wi * x[i];
        error += wi * rounded.errors.row(t)[i];
      }
      spread += squares * square(rounded.steps.row(t)[b]) / 12;
      of_scales += rounded_once(sum, a.levels == kInt8Levels ? unit(DType::kF16) : kSingle);
    }
    return spread + square(error) + of_scales;
  }

  // A copy, at most stored in a smaller type.
  void operator()(const op::Slice&) const {
    const double stored = a.stored > a.activations ? a.stored : 0;
    each([&](size_t i) { return rounded_once(out.values[i], stored); });
  }

  void operator()(const op::Rope& rope) const {
    const std::vector<double> frequencies = op::rope_frequencies(rope);
    const int64_t pairs = rope.dims / 2;
    const bool adjacent = rope.pairing == op::Rope::Pairing::kAdjacent;
    for (int64_t t = 0; t < out.rows; ++t) {
      const auto position = static_cast<double>(place.positions[static_cast<size_t>(t)]);
      for (int64_t head = 0; head < out.columns; head += rope.head_size)
        for (int64_t i = rope.dims; i < rope.head_size; ++i)
          variance.row(t)[head + i] = handed_on(out.row(t)[head + i], a);
      for (int64_t pair = 0; pair < pairs; ++pair) {
        // Frequencies come from a power, whose exponent is off, or from repeated multiplication,
        // so that errors add up by pair. Single precision is the least that angles need: an engine
        // that computes them in less has a defect, whatever it declares.
        const double frequency = frequencies[static_cast<size_t>(pair)];
        const double relative =
            2 + square(static_cast<double>(pair)) / 3 + square(std::log(frequency));
        const double of_angle = square(position * frequency * kSingle) * relative +
                                square(a.compute) +
                                (a.activations > a.compute ? square(a.activations) / 3 : 0) +
                                (a.operands() > a.compute ? square(a.operands()) / 3 : 0);
        for (int64_t head = 0; head < out.columns; head += rope.head_size) {
          const int64_t i = head + (adjacent ? 2 * pair : pair);
          const int64_t j = head + (adjacent ? 2 * pair + 1 : pair + pairs);
          const double size = square(out.row(t)[i]) + square(out.row(t)[j]);
          const double shared = size * (of_angle + square(a.compute));
          variance.row(t)[i] = shared + handed_on(out.row(t)[i], a);
          variance.row(t)[j] = shared + handed_on(out.row(t)[j], a);
        }
      }
    }
  }

  void operator()(const op::Attention&) const {
    LS_CHECK(false, "attention is judged by its parts");
  }

  void operator()(const op::Activate& activate) const {
    // Functions are approximated, with constants, in single precision at best.
    const double function = std::max(a.compute, kSingle);
    each([&](size_t i) {
      const double x = input(0).values[i];
      const double factor = inputs.size() > 1 ? input(1).values[i] : 1;
      const double y = out.values[i];
      // f(x) before the gate: a few roundings of itself; GELU's 1 + tanh(...) loses what cancels.
      double of_function = 9 * rounded_once(y, function);
      if (activate.kind != op::Activate::Kind::kSilu)
        of_function += 4 * rounded_once(x * factor, function);
      else
        of_function += rounded_once(y * x, function);  // of the exponent's argument
      if (inputs.size() > 1)
        of_function += rounded_once(y, std::max(a.activations, a.compute)) + of_operand(y, a);
      return of_function + of_operand(slope(activate.kind, x) * x * factor, a) + handed_on(y, a);
    });
  }

  void operator()(const op::Add&) const {
    each([&](size_t i) {
      return handed_on(out.values[i], a) + of_operand(input(0).values[i], a) +
             of_operand(input(1).values[i], a);
    });
  }

  void operator()(const op::Scale& scale) const {
    each([&](size_t i) {
      const double y = out.values[i];
      return handed_on(y, a) + of_operand(y, a) +
             (scale.factor != 1 ? rounded_once(y, std::max(a.compute, kSingle)) : 0);
    });
  }
};

}  // namespace

Matrix rounding_variance(const op::What& what, std::span<const Matrix* const> inputs,
                         const Matrix& out, const Place& place, const Arithmetic& arithmetic,
                         int threads) {
  Matrix variance(out.rows, out.columns);
  std::visit(Call{inputs, out, place, arithmetic, threads, variance}, what);
  return variance;
}

double guaranteed_bound(const op::Linear& linear, std::span<const double> x, int64_t index,
                        const Arithmetic& a) {
  const op::Weight& weight = linear.weight;
  std::vector<float> w(static_cast<size_t>(weight.columns));
  quant::decode(weight.format->format(), weight.row(index), weight.columns, w.data());
  const int64_t block = activation_block(weight, a.levels);
  double absolute = 0;
  double of_blocks = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double wi = std::fabs(static_cast<double>(w[i]));
    absolute += wi * std::fabs(x[i]);
    if (block == 0) continue;
    const auto b = static_cast<size_t>(block);
    double largest = 0;
    for (size_t j = i / b * b; j < std::min(w.size(), (i / b + 1) * b); ++j)
      largest = std::max(largest, std::fabs(x[j]));
    of_blocks += wi * largest / static_cast<double>(a.levels);
  }
  const double n = static_cast<double>(weight.columns) + 1;
  const double operands = a.operands() > a.compute ? 2 * a.operands() : 0;
  return (n * a.compute + operands + a.stored + kSingle) * absolute + of_blocks;
}

}  // namespace lockstep::parity
