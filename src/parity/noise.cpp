#include "parity/noise.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/parallel.h"
#include "exec/reference/experts.h"
#include "op/rope.h"
#include "parity/noise_experts.h"
#include "parity/noise_linear.h"
#include "parity/rounding.h"
#include "parity/slope.h"
#include "parity/summation.h"
#include "quant/decode.h"

namespace lockstep::parity {
namespace {

// Relative, squared: of 1/sqrt(total), whose total is off by `error`. It is half of the total's
// own; but where next to nothing may be left of the total, the root of epsilon is what remains.
double of_root(double total, double error, double epsilon) {
  if (error < total / 16) return square(error / total) / 4;
  return square(std::sqrt(total / std::max(total - 4 * error, epsilon)) + 1);
}

struct Call {
  std::span<const Matrix* const> inputs;
  const Matrix& out;
  const Place& place;
  const Arithmetic& a;
  int threads;
  Matrix& variance;

  const Matrix& input(size_t index) const { return *inputs[index]; }
  static std::span<const double> row(const Matrix& matrix, int64_t t) {
    return {matrix.row(t), static_cast<size_t>(matrix.columns)};
  }

  template <class F>
  void each(const F& f) const {
    parallel_rows(out.rows, out.columns, threads, [&](int64_t t) {
      const auto first = static_cast<size_t>(t * out.columns);
      for (size_t i = first; i < first + static_cast<size_t>(out.columns); ++i)
        variance.values[i] = f(i);
    });
  }

  // A table's rows are copied, perhaps through a smaller type; decoding rounds to single precision.
  void operator()(const op::Embed& embed) const {
    const double decoded = is_quantized(embed.table) ? kSingle : 0;
    each([&](size_t i) {
      return handed_on(out.values[i], a) + rounded_once(out.values[i], decoded);
    });
    if (!a.weights || is_quantized(embed.table)) return;
    const std::vector<double> largest(
        static_cast<size_t>(out.rows),
        a.weights->scale == Scale::kTensor ? largest_of_weight(embed.table, threads) : 0);
    const Rounded rounded = round_rows(*a.weights, out, largest);
    for (size_t i = 0; i < out.values.size(); ++i)
      variance.values[i] += with_known(rounded.variances.values[i], rounded.errors.values[i]);
  }

  void operator()(const op::Norm& norm) const {
    const auto n = static_cast<double>(norm.group);
    const bool layer = norm.kind == op::Norm::Kind::kLayer;
    std::vector<float> weights(static_cast<size_t>(norm.weight.columns));
    quant::decode(norm.weight.format->format(), norm.weight.row(0), norm.weight.columns,
                  weights.data());
    // Vectors are rounded as matrices are, where that is to a plain type.
    const double plain_weights = a.weights && a.weights->is_plain() ? a.weights->unit : 0;
    const double of_product = square(a.compute) / 3;
    parallel_rows(out.rows, 16 * out.columns, threads, [&](int64_t t) {
      std::vector<double> terms(static_cast<size_t>(norm.group));
      for (int64_t first = 0; first < out.columns; first += norm.group) {
        const double* x = input(0).row(t) + first;
        const float* weight = weights.data() + norm.weight_of(first);
        double mean = 0;
        for (int64_t i = 0; i < norm.group; ++i) mean += x[i];
        mean = layer ? mean / n : 0;
        double squares = 0;
        double fourths = 0;
        for (int64_t i = 0; i < norm.group; ++i) {
          const double term = square(x[i] - mean);
          terms[static_cast<size_t>(i)] = term;
          squares += term;
          fourths += square(term);
        }
        const double total = squares / n + norm.epsilon;
        const double factor = 1 / std::sqrt(total);
        // The sum of squares is off by a relative error, its root by half of that; then a division,
        // a root and the constant's own rounding.
        const double of_inputs = a.operands() > a.compute ? square(a.operands()) / 3 : 0;
        double of_sum = noise_of_sum(terms, a.compute, 0, true).variance +
                        (4 * of_inputs + of_product) * fourths + of_vanishing(n, 0, 0, a.compute);
        // The mean is off by an absolute error, which all elements share; an engine that takes
        // E[x^2] - E[x]^2 for the variance loses what the two have in common.
        double of_mean = 0;
        if (layer) {
          of_mean = noise_of_sum({x, terms.size()}, a.compute, 0, true).variance / square(n) +
                    rounded_once(mean, a.compute);
          for (int64_t i = 0; i < norm.group; ++i) terms[static_cast<size_t>(i)] = square(x[i]);
          of_sum += noise_of_sum(terms, a.compute, 0, true).variance +
                    of_mean * square(2 * n * mean) + 4 * square(n * square(mean) * a.compute);
        }
        const double of_factor = of_root(total, std::sqrt(of_sum) / n, norm.epsilon) +
                                 4 * square(a.compute) +
                                 rounded_once(norm.epsilon / total, kSingle) / 4;
        for (int64_t i = 0; i < norm.group; ++i) {
          const double w = static_cast<double>(weight[static_cast<size_t>(i)]);
          const double scaled = (x[i] - mean) * factor * w;
          const double y = out.row(t)[first + i];
          variance.row(t)[first + i] =
              square(scaled) * of_factor +
              square(factor * w) * (1 + of_factor) *
                  (of_mean + rounded_once(std::fabs(x[i]) + std::fabs(mean), a.compute) * 2 +
                   of_operand(x[i], a)) +
              rounded_once(scaled, std::max(a.activations, a.compute)) + handed_on(y, a) +
              (plain_weights > 0 ? rounded_once(scaled, plain_weights) : 0);
        }
      }
    });
  }

  void operator()(const op::Linear& linear) const {
    variance = LinearNoise(linear, input(0), a, threads).all(out);
  }

  // A copy, at most stored in a smaller type.
  void of_copy() const {
    const double stored = a.stored > a.activations ? a.stored : 0;
    each([&](size_t i) { return rounded_once(out.values[i], stored); });
  }
  void operator()(const op::Slice&) const { of_copy(); }
  void operator()(const op::HeadParts&) const { of_copy(); }

  void operator()(const op::Rope& rope) const {
    const std::vector<double> frequencies = op::rope_frequencies(rope);
    const int64_t pairs = rope.dims / 2;
    const bool adjacent = rope.pairing == op::Rope::Pairing::kAdjacent;
    parallel_rows(out.rows, out.columns, threads, [&](int64_t t) {
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
    });
  }

  void operator()(const op::Attention&) const {
    LS_CHECK(false, "attention is judged by its parts");
  }

  // Engines put it together from a product, a sigmoid, a product and a sum, and hand each on. What
  // is lost of y before 1 is added stays as large where the sum is small.
  double of_clamped_swish(double x, double y, double result) const {
    const double handed = std::max({a.activations, a.compute, kSingle});
    const double argument = op::Activate::kSteepness * std::min(x, op::Activate::kLimit);
    const double share = 1 / (1 + std::exp(argument));
    const double f = op::activated(op::Activate::Kind::kClampedSwish, x);
    return 2 * rounded_once(result, handed) + rounded_once(result * share * argument, handed) +
           of_operand(f * std::min(std::fabs(y), op::Activate::kLimit), a);
  }

  void operator()(const op::Activate& activate) const {
    // Functions are approximated, with constants, in single precision at best.
    const double function = std::max(a.compute, kSingle);
    const bool rounds_operands = a.operands() > a.compute;
    each([&](size_t i) {
      const double x = input(0).values[i];
      const bool gated = inputs.size() > 1;
      const double factor = gated ? op::factor_of_gate(activate.kind, input(1).values[i]) : 1;
      const double y = out.values[i];
      // f(x) before the gate: a few roundings of itself; GELU's 1 + tanh(...) loses what cancels.
      double of_function = 9 * rounded_once(y, function);
      if (activate.kind == op::Activate::Kind::kClampedSwish)
        of_function += of_clamped_swish(x, gated ? input(1).values[i] : 0, y);
      else if (activate.kind != op::Activate::Kind::kSilu)
        of_function += 4 * rounded_once(x * factor, function);
      else
        of_function += rounded_once(y * x, function);  // of the exponent's argument
      if (gated)
        of_function += rounded_once(y, std::max(a.activations, a.compute)) + of_operand(y, a);
      if (rounds_operands)  // slopes take long
        of_function += of_operand(slope(activate.kind, x) * x * factor, a);
      return of_function + handed_on(y, a);
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

  void operator()(const op::SoftCap& soft) const {
    // x / cap, a function that is approximated, and a product.
    const double function = std::max(a.compute, kSingle);
    each([&](size_t i) {
      const double y = out.values[i];
      const double x = input(0).values[i];
      const double slope = 1 - square(y / soft.cap);
      return handed_on(y, a) + of_operand(slope * x, a) + 9 * rounded_once(y, function) +
             rounded_once(slope * x, function);
    });
  }

  // A choice is right or wrong (replay_choice.cpp).
  void operator()(const op::Choose&) const {}

  void operator()(const op::Weigh& weigh) const {
    parallel_rows(out.rows, 8 * input(0).columns, threads, [&](int64_t t) {
      weights_variance(weigh, row(input(0), t), row(input(1), t), row(out, t), a,
                       {variance.row(t), static_cast<size_t>(variance.columns)});
    });
  }

  void operator()(const op::ExpertLinear& all) const {
    exec::reference::for_each_expert(
        all, input(1), [&](const op::Linear& linear, std::span<const op::Slot> slots) {
          Arithmetic here = a;
          std::vector<double> largest;
          if (!a.largest.empty()) {
            for (const op::Slot& slot : slots)
              largest.push_back(a.largest[static_cast<size_t>(slot.token)]);
            here.largest = largest;
          }
          const Matrix x = exec::reference::rows_of_slots(input(0), linear.weight.columns, slots);
          const Matrix y = exec::reference::rows_of_slots(out, linear.weight.rows, slots);
          exec::reference::put_rows_of_slots(LinearNoise(linear, x, here, threads).all(y), slots,
                                             variance);
        });
  }

  void operator()(const op::MixExperts&) const {
    const auto slots = static_cast<size_t>(input(0).columns);
    parallel_rows(out.rows, 4 * input(1).columns, threads, [&](int64_t t) {
      std::vector<double> terms(slots);
      for (int64_t i = 0; i < out.columns; ++i) {
        double of_terms = 0;
        for (size_t slot = 0; slot < slots; ++slot) {
          const auto at = static_cast<int64_t>(slot);
          terms[slot] = input(0).row(t)[at] * input(1).row(t)[at * out.columns + i];
          // Each is rounded, perhaps to the type of activations, and its factors may have been.
          of_terms += rounded_once(terms[slot], std::max(a.activations, a.compute)) +
                      2 * of_operand(terms[slot], a);
        }
        // Sums may be kept in the type of activations.
        const double unit = std::max(a.activations, a.compute);
        variance.row(t)[i] =
            noise_of_sum(terms, unit, 0, true).variance + of_terms + handed_on(out.row(t)[i], a);
      }
    });
  }

  void operator()(const op::Gate&) const {
    const double function = std::max(a.compute, kSingle);
    each([&](size_t i) {
      const double y = out.values[i];
      const double gate = input(1).values[i / static_cast<size_t>(out.columns)];
      const double slope = 1 - 1 / (1 + std::exp(-gate));  // relative
      return 9 * rounded_once(y, function) + rounded_once(y * slope * gate, function) +
             rounded_once(y, std::max(a.activations, a.compute)) + of_operand(y * slope * gate, a) +
             2 * of_operand(y, a) + handed_on(y, a);
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

}  // namespace lockstep::parity
