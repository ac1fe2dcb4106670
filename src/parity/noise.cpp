#include "parity/noise.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/parallel.h"
#include "op/rope.h"
#include "quant/decode.h"

namespace lockstep::parity {
namespace {

double square(double x) {
  return x * x;
}

// A number rounded once: the error is spread evenly over one unit to either side.
double rounded_once(double value, double unit) {
  return square(value * unit) / 3;
}

// A sum of n terms added one after another in any order: every partial sum is rounded. Over random
// orders the k-th partial sum has the mean square k/n * squares + (k/n * sum)^2.
double summed(double n, double sum, double squares, double unit) {
  return square(unit) / 3 * n * (squares / 2 + square(sum) / 3);
}

// Each term had operands that were rounded to `unit` first (two of them).
double operands_rounded(double squares, double unit) {
  return 2 * square(unit) / 3 * squares;
}

// What is handed on is rounded to the type of activations, and to that of the trace.
double handed_on(double value, const Arithmetic& a) {
  return rounded_once(value, a.compute) + rounded_once(value, std::max(a.activations, a.stored));
}

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

  // A table's rows are copied, perhaps through a smaller type.
  void operator()(const op::Embed&) const {
    each([&](size_t i) { return handed_on(out.values[i], a); });
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
        double plain_squares = squares + n * square(mean);
        const double total = squares / n + norm.epsilon;
        const double factor = 1 / std::sqrt(total);
        // The sum of squares is off by a relative error, its root by half of that.
        const double of_factor =
            summed(n, squares, fourths, a.compute) / square(n * total) / 4 + 4 * square(a.compute);
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
              square(factor * w) * rounded_once(std::fabs(x[i]) + std::fabs(mean), a.compute) * 2 +
              rounded_once(scaled, std::max(a.activations, a.compute)) + handed_on(y, a);
        }
      }
  }

  void operator()(const op::Linear& linear) const {
    const op::Weight& weight = linear.weight;
    const int64_t block = a.int8_activations ? int8_block(weight) : 0;
    const Matrix steps = block > 0 ? int8_variances(block) : Matrix();
    // Without 8-bit blocks, half-precision weights are multiplied with half-precision activations.
    double operands = a.activations;
    if (a.int8_activations && weight.format->format() == quant::Format::kF16)
      operands = unit(DType::kF16);
    if (a.int8_activations && weight.format->format() == quant::Format::kBF16)
      operands = unit(DType::kBF16);
    const auto n = static_cast<double>(weight.columns);
    const auto rows = [&](int64_t begin, int64_t end) {
      std::vector<float> w(static_cast<size_t>(weight.columns));
      for (int64_t r = begin; r < end; ++r) {
        quant::decode(weight.format->format(), weight.row(r), weight.columns, w.data());
        for (int64_t t = 0; t < out.rows; ++t) {
          const double* x = input(0).row(t);
          double squares = 0;
          double of_blocks = 0;
          for (int64_t i = 0; i < weight.columns; ++i) {
            const double wi = static_cast<double>(w[static_cast<size_t>(i)]);
            squares += square(wi * x[i]);
            if (block > 0) of_blocks += square(wi) * steps.row(t)[i / block];
          }
          const double y = out.row(t)[r];
          variance.row(t)[r] = summed(n, y, squares, a.compute) +
                               (operands > a.compute ? operands_rounded(squares, operands) : 0) +
                               of_blocks + handed_on(y, a) + square(a.compute) * squares;
        }
      }
    };
    const int64_t work_a_row = 2 * weight.columns * out.rows;
    parallel_for(out.columns, std::max<int64_t>(1, 200'000 / work_a_row), rows, threads);
  }

  // Rounding to whole numbers from -127 to 127 times a scale: [rows, blocks].
  Matrix int8_variances(int64_t block) const {
    const Matrix& x = input(0);
    Matrix steps(x.rows, (x.columns + block - 1) / block);
    for (int64_t t = 0; t < x.rows; ++t)
      for (int64_t b = 0; b < steps.columns; ++b) {
        double largest = 0;
        for (int64_t i = b * block; i < std::min(x.columns, (b + 1) * block); ++i)
          largest = std::max(largest, std::fabs(x.row(t)[i]));
        // The scale itself is kept in half precision.
        steps.row(t)[b] = square(largest / 127) / 12 + rounded_once(largest, unit(DType::kF16)) / 3;
      }
    return steps;
  }

  void operator()(const op::Slice&) const {
    each([&](size_t) { return 0.0; });
  }

  void operator()(const op::Rope& rope) const {
    const std::vector<double> frequencies = op::rope_frequencies(rope);
    const int64_t pairs = rope.dims / 2;
    const bool adjacent = rope.pairing == op::Rope::Pairing::kAdjacent;
    for (int64_t t = 0; t < out.rows; ++t) {
      const auto position = static_cast<double>(place.positions[static_cast<size_t>(t)]);
      for (int64_t head = 0; head < out.columns; head += rope.head_size)
        for (int64_t i = rope.dims; i < rope.head_size; ++i)
          variance.row(t)[head + i] = rounded_once(out.row(t)[head + i], a.stored);
      for (int64_t pair = 0; pair < pairs; ++pair) {
        // Frequencies are often made by repeated multiplication, so that errors add up by pair.
        const double angle = position * frequencies[static_cast<size_t>(pair)];
        const double of_angle = square(angle * a.compute * (2 + static_cast<double>(pair) / 2)) +
                                square(a.compute) +
                                (a.activations > a.compute ? square(a.activations) / 3 : 0);
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
    each([&](size_t i) {
      const double x = input(0).values[i];
      const double factor = inputs.size() > 1 ? input(1).values[i] : 1;
      const double y = out.values[i];
      // f(x) before the gate: a few roundings of itself; GELU's 1 + tanh(...) loses what cancels.
      double of_function = 9 * rounded_once(y, a.compute);
      if (activate.kind != op::Activate::Kind::kSilu)
        of_function += 4 * rounded_once(x * factor, a.compute);
      else
        of_function += rounded_once(y * x, a.compute);  // of the exponent's argument
      if (inputs.size() > 1) of_function += rounded_once(y, std::max(a.activations, a.compute));
      return of_function + handed_on(y, a);
    });
  }

  void operator()(const op::Add&) const {
    each([&](size_t i) { return handed_on(out.values[i], a); });
  }

  void operator()(const op::Scale& scale) const {
    // The factor itself is kept in the engine's precision.
    each([&](size_t i) {
      return handed_on(out.values[i], a) +
             (scale.factor != 1 ? rounded_once(out.values[i], a.compute) : 0);
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

void score_variance(const op::Attention& attention, const double* q_head, const Matrix& k,
                    int64_t kv_head, std::span<const double> scores, const Arithmetic& a,
                    std::span<double> variance) {
  const auto n = static_cast<double>(attention.head_size);
  const double operands = std::max(a.kv, a.activations);
  for (size_t p = 0; p < scores.size(); ++p) {
    if (!std::isfinite(scores[p])) {
      variance[p] = 0;
      continue;
    }
    const double* key = k.row(static_cast<int64_t>(p)) + kv_head * attention.head_size;
    double squares = 0;
    double sum = 0;
    for (int64_t i = 0; i < attention.head_size; ++i) {
      const double term = q_head[i] * key[i] * attention.scale;
      squares += square(term);
      sum += term;
    }
    variance[p] = summed(n, sum, squares, a.compute) + 2 * square(a.compute) * squares +
                  (operands > a.compute ? operands_rounded(squares, operands) : 0) +
                  3 * rounded_once(sum, a.compute) + handed_on(scores[p], a);
  }
}

void softmax_variance(std::span<const double> scores, std::span<const double> probs,
                      std::span<const double> score_variance, const Arithmetic& a,
                      std::span<double> variance) {
  const double largest = *std::ranges::max_element(scores);
  double shared = 0;  // of the sum, relative
  double squares = 0;
  double seen = 0;
  for (size_t p = 0; p < scores.size(); ++p) {
    if (probs[p] == 0) continue;
    shared += square(probs[p]) * score_variance[p];
    squares += square(probs[p]);
    ++seen;
  }
  shared += summed(seen, 1, squares, a.compute);
  for (size_t p = 0; p < scores.size(); ++p) {
    if (probs[p] == 0) {
      variance[p] = 0;
      continue;
    }
    const double of_exponent = square(a.compute) * (4 + square(scores[p] - largest));
    variance[p] =
        square(probs[p]) * (score_variance[p] + shared + of_exponent) + handed_on(probs[p], a);
  }
}

void mix_variance(const op::Attention& attention, std::span<const double> probs,
                  std::span<const double> prob_variance, const Matrix& v, int64_t kv_head,
                  const double* mix, const Arithmetic& a, double* variance) {
  const double operands = std::max(a.kv, a.activations);
  for (int64_t d = 0; d < attention.value_size; ++d) {
    double squares = 0;
    double of_probs = 0;
    double seen = 0;
    for (size_t p = 0; p < probs.size(); ++p) {
      if (probs[p] == 0) continue;
      const double value = v.row(static_cast<int64_t>(p))[kv_head * attention.value_size + d];
      squares += square(probs[p] * value);
      // What all probabilities have in common (their sum is off) moves the mix as a whole.
      of_probs += prob_variance[p] * square(value - mix[d]) + prob_variance[p] * square(mix[d]);
      ++seen;
    }
    variance[d] =
        of_probs + summed(seen, mix[d], squares, a.compute) + square(a.compute) * squares +
        (operands > a.compute ? operands_rounded(squares, operands) : 0) + handed_on(mix[d], a);
  }
}

}  // namespace lockstep::parity
