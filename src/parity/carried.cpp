#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "exec/reference/experts.h"
#include "op/head_parts.h"
#include "op/rope.h"
#include "parity/noise.h"
#include "parity/noise_experts.h"
#include "parity/rounding.h"
#include "parity/slope.h"
#include "quant/decode.h"

namespace lockstep::parity {
namespace {

std::vector<float> decode_row(const op::Weight& weight, int64_t row) {
  std::vector<float> out(static_cast<size_t>(weight.columns));
  quant::decode(weight.format->format(), weight.row(row), weight.columns, out.data());
  return out;
}

struct Carry {
  std::span<const Matrix* const> inputs;
  std::span<const Matrix* const> variances;
  const Place& place;
  int threads;
  Products& products;
  Matrix& out;

  // Of element `i` of an input, row `t`.
  double of(size_t input, int64_t t, int64_t i) const {
    const Matrix& v = *variances[input];
    return v.values.empty() ? 0 : v.row(t)[i];
  }

  template <class F>
  void each(const F& f) const {
    for (int64_t t = 0; t < out.rows; ++t)
      for (int64_t i = 0; i < out.columns; ++i) out.row(t)[i] = f(t, i);
  }

  void operator()(const op::Embed&) const {}

  // The element itself; that it moves the norm of its group is left to the sampled errors.
  void operator()(const op::Norm& norm) const {
    const std::vector<float> weight = decode_row(norm.weight, 0);
    const auto n = static_cast<double>(norm.group);
    for (int64_t t = 0; t < out.rows; ++t)
      for (int64_t first = 0; first < out.columns; first += norm.group) {
        const double* x = inputs[0]->row(t) + first;
        double sum = 0;
        double squares = 0;
        for (int64_t i = 0; i < norm.group; ++i) {
          sum += x[i];
          squares += square(x[i]);
        }
        const double mean = norm.kind == op::Norm::Kind::kLayer ? sum / n : 0;
        const double total = squares / n - square(mean) + norm.epsilon;
        for (int64_t i = 0; i < norm.group; ++i)
          out.row(t)[first + i] =
              of(0, t, first + i) / total *
              square(static_cast<double>(weight[static_cast<size_t>(norm.weight_of(first) + i)]));
      }
  }

  void operator()(const op::Linear& linear) const {
    out = exec::f64::multiply_squares(linear.weight, *variances[0], threads, products);
  }

  void operator()(const op::Slice& slice) const {
    each([&](int64_t t, int64_t i) { return of(0, t, slice.first + i); });
  }

  void operator()(const op::HeadParts& parts) const {
    const int64_t y_width = inputs.size() > 1 ? inputs[1]->columns : 0;
    each([&](int64_t t, int64_t i) {
      const op::HeadPlace from =
          op::place_in_heads(parts, inputs[0]->columns, y_width, out.columns, i);
      return of(from.input, t, from.column);
    });
  }

  void operator()(const op::Rope& rope) const {
    const std::vector<double> frequencies = op::rope_frequencies(rope);
    const double magnitude = op::rope_magnitude(rope);
    const int64_t pairs = rope.dims / 2;
    const bool adjacent = rope.pairing == op::Rope::Pairing::kAdjacent;
    each([&](int64_t t, int64_t i) { return of(0, t, i); });
    for (int64_t t = 0; t < out.rows; ++t)
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const double angle = static_cast<double>(place.positions[static_cast<size_t>(t)]) *
                             frequencies[static_cast<size_t>(pair)];
        const double c = square(std::cos(angle) * magnitude);
        const double s = square(std::sin(angle) * magnitude);
        for (int64_t head = 0; head < out.columns; head += rope.head_size) {
          const int64_t i = head + (adjacent ? 2 * pair : pair);
          const int64_t j = head + (adjacent ? 2 * pair + 1 : pair + pairs);
          out.row(t)[i] = c * of(0, t, i) + s * of(0, t, j);
          out.row(t)[j] = s * of(0, t, i) + c * of(0, t, j);
        }
      }
  }

  void operator()(const op::Attention&) const {
    LS_CHECK(false, "attention is judged by its parts");
  }

  void operator()(const op::Activate& activate) const {
    each([&](int64_t t, int64_t i) {
      const double x = inputs[0]->row(t)[i];
      const bool gated = inputs.size() > 1;
      const double y = gated ? inputs[1]->row(t)[i] : 0;
      const double factor = gated ? op::factor_of_gate(activate.kind, y) : 1;
      const double of_gate =
          gated ? op::activated(activate.kind, x) * slope_of_gate(activate.kind, y) : 0;
      return square(slope(activate.kind, x) * factor) * of(0, t, i) +
             (gated ? square(of_gate) * of(1, t, i) : 0);
    });
  }

  void operator()(const op::Add&) const {
    each([&](int64_t t, int64_t i) { return of(0, t, i) + of(1, t, i); });
  }

  void operator()(const op::Scale& scale) const {
    each([&](int64_t t, int64_t i) { return square(scale.factor) * of(0, t, i); });
  }

  void operator()(const op::SoftCap& soft) const {
    each([&](int64_t t, int64_t i) {
      const double y = std::tanh(inputs[0]->row(t)[i] / soft.cap);
      return square(1 - square(y)) * of(0, t, i);
    });
  }

  // Where a choice is not certain, the sampled errors show what may come of it.
  void operator()(const op::Choose&) const {}

  void operator()(const op::Weigh& weigh) const {
    const auto experts = static_cast<size_t>(inputs[0]->columns);
    const auto slots = static_cast<size_t>(out.columns);
    for (int64_t t = 0; t < out.rows; ++t) {
      const std::vector<double> slopes =
          slopes_of_weights(weigh, {inputs[0]->row(t), experts}, {inputs[1]->row(t), slots});
      for (size_t slot = 0; slot < slots; ++slot)
        for (size_t e = 0; e < experts; ++e)
          out.row(t)[slot] +=
              square(slopes[slot * experts + e]) * of(0, t, static_cast<int64_t>(e));
    }
  }

  void operator()(const op::ExpertLinear& all) const {
    if (variances[0]->values.empty()) return;
    exec::reference::for_each_expert(
        all, *inputs[1], [&](const op::Linear& linear, std::span<const op::Slot> slots) {
          const Matrix x =
              exec::reference::rows_of_slots(*variances[0], linear.weight.columns, slots);
          exec::reference::put_rows_of_slots(
              exec::f64::multiply_squares(linear.weight, x, threads, products), slots, out);
        });
  }

  void operator()(const op::MixExperts&) const {
    each([&](int64_t t, int64_t i) {
      double sum = 0;
      for (int64_t slot = 0; slot < inputs[0]->columns; ++slot) {
        const int64_t at = slot * out.columns + i;
        sum += square(inputs[0]->row(t)[slot]) * of(1, t, at) +
               square(inputs[1]->row(t)[at]) * of(0, t, slot);
      }
      return sum;
    });
  }

  void operator()(const op::Gate&) const {
    each([&](int64_t t, int64_t i) {
      const double gate = 1 / (1 + std::exp(-inputs[1]->row(t)[0]));
      return square(gate) * of(0, t, i) +
             square(inputs[0]->row(t)[i] * gate * (1 - gate)) * of(1, t, 0);
    });
  }
};

}  // namespace

Matrix carried_variance(const op::What& what, std::span<const Matrix* const> inputs,
                        std::span<const Matrix* const> variances, const Matrix& out,
                        const Place& place, int threads, Products& products) {
  Matrix carried(out.rows, out.columns);
  std::visit(Carry{inputs, variances, place, threads, products, carried}, what);
  return carried;
}

}  // namespace lockstep::parity
