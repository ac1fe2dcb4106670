#include "exec/reference/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/parallel.h"
#include "exec/reference/experts.h"
#include "exec/reference/sums.h"
#include "op/activation.h"
#include "op/head_parts.h"
#include "op/rope.h"
#include "quant/decode.h"

namespace lockstep::exec::reference {
namespace {

// Multiply-adds below which starting a thread costs more than it saves.
constexpr int64_t kWorthAThread = 1'000'000;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<double> decode_row(const op::Weight& weight, int64_t row) {
  std::vector<float> floats(static_cast<size_t>(weight.columns));
  quant::decode(weight.format->format(), weight.row(row), weight.columns, floats.data());
  return {floats.begin(), floats.end()};
}

struct Call {
  std::span<const Matrix* const> inputs;
  const Place& place;
  int threads;
  Scores* scores;
  Matrix& out;  // sized: a row a token

  const Matrix& input(size_t index) const { return *inputs[index]; }

  void operator()(const op::Embed& embed) const {
    for (int64_t t = 0; t < out.rows; ++t) {
      const int64_t row = embed.index == op::Embed::Index::kToken
                              ? place.tokens[static_cast<size_t>(t)]
                              : place.positions[static_cast<size_t>(t)];
      std::ranges::copy(decode_row(embed.table, row), out.row(t));
    }
  }

  void operator()(const op::Norm& norm) const {
    const std::vector<double> weight = decode_row(norm.weight, 0);
    std::vector<double> bias(weight.size());
    if (norm.bias) bias = decode_row(*norm.bias, 0);
    const auto count = static_cast<double>(norm.group);
    for (int64_t t = 0; t < out.rows; ++t) {
      for (int64_t first = 0; first < out.columns; first += norm.group) {
        const double* x = input(0).row(t) + first;
        // The mean in two parts: beside a large one, what its rounding loses is not small.
        double mean = 0;
        double rest = 0;
        if (norm.kind == op::Norm::Kind::kLayer) {
          Sum sum;
          for (int64_t i = 0; i < norm.group; ++i) sum.add(x[i]);
          mean = sum.value() / count;
          Sum differences;
          for (int64_t i = 0; i < norm.group; ++i) differences.add(x[i] - mean);
          rest = differences.value() / count;
        }
        Sum squares;
        for (int64_t i = 0; i < norm.group; ++i) {
          const double difference = (x[i] - mean) - rest;
          squares.add(difference * difference);
        }
        const double variance = squares.value() / count;
        const double factor = 1 / std::sqrt(variance + norm.epsilon);
        for (int64_t i = 0; i < norm.group; ++i) {
          const auto w = static_cast<size_t>(norm.weight_of(first) + i);
          out.row(t)[first + i] = ((x[i] - mean) - rest) * factor * weight[w] + bias[w];
        }
      }
    }
  }

  void operator()(const op::Linear& linear) const {
    std::vector<double> bias(static_cast<size_t>(out.columns));
    if (linear.bias) bias = decode_row(*linear.bias, 0);
    const auto rows = [&](int64_t begin, int64_t end) {
      std::vector<float> floats(static_cast<size_t>(linear.weight.columns));
      std::vector<double> weight(floats.size());
      for (int64_t r = begin; r < end; ++r) {
        quant::decode(linear.weight.format->format(), linear.weight.row(r), linear.weight.columns,
                      floats.data());
        std::ranges::copy(floats, weight.begin());
        for (int64_t t = 0; t < out.rows; ++t)
          out.row(t)[r] = dot(weight.data(), input(0).row(t), linear.weight.columns) +
                          bias[static_cast<size_t>(r)];
      }
    };
    const int64_t work_a_row = linear.weight.columns * out.rows;
    parallel_for(out.columns, std::max<int64_t>(1, kWorthAThread / work_a_row), rows, threads);
  }

  void operator()(const op::Slice& slice) const {
    for (int64_t t = 0; t < out.rows; ++t)
      std::copy_n(input(0).row(t) + slice.first, out.columns, out.row(t));
  }

  void operator()(const op::HeadParts& parts) const {
    const int64_t y_width = inputs.size() > 1 ? input(1).columns : 0;
    for (int64_t i = 0; i < out.columns; ++i) {
      const op::HeadPlace from =
          op::place_in_heads(parts, input(0).columns, y_width, out.columns, i);
      for (int64_t t = 0; t < out.rows; ++t) out.row(t)[i] = input(from.input).row(t)[from.column];
    }
  }

  void operator()(const op::Rope& rope) const {
    const std::vector<double> frequencies = op::rope_frequencies(rope);
    const double magnitude = op::rope_magnitude(rope);
    const bool adjacent = rope.pairing == op::Rope::Pairing::kAdjacent;
    const int64_t pairs = rope.dims / 2;
    for (int64_t t = 0; t < out.rows; ++t) {
      std::copy_n(input(0).row(t), out.columns, out.row(t));
      for (int64_t pair = 0; pair < pairs; ++pair) {
        const double angle = static_cast<double>(place.positions[static_cast<size_t>(t)]) *
                             frequencies[static_cast<size_t>(pair)];
        const double c = std::cos(angle) * magnitude;
        const double s = std::sin(angle) * magnitude;
        for (int64_t head = 0; head < out.columns; head += rope.head_size) {
          double& a = out.row(t)[head + (adjacent ? 2 * pair : pair)];
          double& b = out.row(t)[head + (adjacent ? 2 * pair + 1 : pair + pairs)];
          const double x = a;
          const double y = b;
          a = x * c - y * s;
          b = x * s + y * c;
        }
      }
    }
  }

  void operator()(const op::Attention& attention) const {
    const Matrix& q = input(0);
    const int64_t positions = *std::ranges::max_element(place.positions) + 1;
    LS_CHECK(input(1).rows >= positions && input(2).rows >= positions);
    if (scores != nullptr) {
      scores->scores = Matrix(attention.heads * out.rows, positions);
      scores->probs = Matrix(attention.heads * out.rows, positions);
    }
    const std::vector<double> sinks = sinks_of(attention);
    const auto heads_and_tokens = [&](int64_t begin, int64_t end) {
      std::vector<double> row(static_cast<size_t>(positions));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i / out.rows;
        const int64_t t = i % out.rows;
        const int64_t kv_head = head / (attention.heads / attention.kv_heads);
        score_row(attention, q.row(t) + head * attention.head_size, input(1), kv_head,
                  place.positions[static_cast<size_t>(t)], row);
        if (scores != nullptr) std::ranges::copy(row, scores->scores.row(i));
        softmax(row, sinks[static_cast<size_t>(head)]);
        if (scores != nullptr) std::ranges::copy(row, scores->probs.row(i));
        mix_row(attention, row, input(2), kv_head, out.row(t) + head * attention.value_size);
      }
    };
    const int64_t work = positions * (attention.head_size + attention.value_size);
    parallel_for(attention.heads * out.rows, std::max<int64_t>(1, kWorthAThread / work),
                 heads_and_tokens, threads);
  }

  void operator()(const op::Activate& activate) const {
    for (size_t i = 0; i < out.values.size(); ++i) {
      const double y = op::activated(activate.kind, input(0).values[i]);
      out.values[i] =
          inputs.size() > 1 ? y * op::factor_of_gate(activate.kind, input(1).values[i]) : y;
    }
  }

  void operator()(const op::Add&) const {
    for (size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = input(0).values[i] + input(1).values[i];
  }

  void operator()(const op::Scale& scale) const {
    for (size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = scale.factor * input(0).values[i];
  }

  void operator()(const op::SoftCap& soft) const {
    for (size_t i = 0; i < out.values.size(); ++i)
      out.values[i] = soft.cap * std::tanh(input(0).values[i] / soft.cap);
  }

  void operator()(const op::Choose& choose) const {
    const std::vector<double> bias =
        choose.bias ? decode_row(*choose.bias, 0) : std::vector<double>{};
    std::vector<int64_t> choice(static_cast<size_t>(out.columns));
    for (int64_t t = 0; t < out.rows; ++t) {
      std::vector<double> of_experts(input(0).row(t), input(0).row(t) + input(0).columns);
      op::scores_for_choice(choose, bias, of_experts);
      op::choose_experts(choose, of_experts, choice);
      std::ranges::copy(choice, out.row(t));
    }
  }

  void operator()(const op::Weigh& weigh) const {
    const int64_t experts = input(0).columns;
    for (int64_t t = 0; t < out.rows; ++t) {
      std::vector<double> of_experts(input(0).row(t), input(0).row(t) + experts);
      op::score_experts(weigh.scoring, of_experts);
      double sum = 0;
      for (int64_t slot = 0; slot < out.columns; ++slot) {
        const int64_t expert = op::chosen_expert(input(1).row(t)[slot], experts);
        out.row(t)[slot] = expert < 0 ? kNaN : of_experts[static_cast<size_t>(expert)];
        sum += out.row(t)[slot];
      }
      for (int64_t slot = 0; slot < out.columns; ++slot)
        out.row(t)[slot] *= weigh.scale / (weigh.normalize ? sum : 1);
    }
  }

  void operator()(const op::ExpertLinear& all) const {
    std::ranges::fill(out.values, kNaN);
    for_each_expert(all, input(1), [&](const op::Linear& linear, std::span<const op::Slot> slots) {
      const Matrix x = rows_of_slots(input(0), linear.weight.columns, slots);
      const Matrix* const inputs_of_one[] = {&x};
      Matrix rows(x.rows, linear.weight.rows);
      Call{inputs_of_one, place, threads, nullptr, rows}(linear);
      put_rows_of_slots(rows, slots, out);
    });
  }

  void operator()(const op::MixExperts&) const {
    for (int64_t t = 0; t < out.rows; ++t)
      for (int64_t i = 0; i < out.columns; ++i) {
        Sum sum;
        for (int64_t slot = 0; slot < input(0).columns; ++slot)
          sum.add(input(0).row(t)[slot] * input(1).row(t)[slot * out.columns + i]);
        out.row(t)[i] = sum.value();
      }
  }

  void operator()(const op::Gate&) const {
    for (int64_t t = 0; t < out.rows; ++t)
      for (int64_t i = 0; i < out.columns; ++i)
        out.row(t)[i] = input(0).row(t)[i] / (1 + std::exp(-input(1).row(t)[0]));
  }
};

}  // namespace

Seen seen_by(const op::Attention& attention, int64_t position) {
  const int64_t first =
      attention.window > 0 ? std::max<int64_t>(0, position - attention.window + 1) : 0;
  return {first, position + 1};
}

void score_row(const op::Attention& attention, const double* q_head, const Matrix& k,
               int64_t kv_head, int64_t position, std::span<double> row) {
  const Seen seen = seen_by(attention, position);
  std::ranges::fill(row, -kInfinity);
  for (int64_t p = seen.first; p < seen.end; ++p) {
    double score = attention.scale *
                   dot(q_head, k.row(p) + kv_head * attention.head_size, attention.head_size);
    if (attention.soft_cap > 0) score = attention.soft_cap * std::tanh(score / attention.soft_cap);
    row[static_cast<size_t>(p)] = score;
  }
}

std::vector<double> sinks_of(const op::Attention& attention) {
  if (attention.sinks) return decode_row(*attention.sinks, 0);
  return std::vector<double>(static_cast<size_t>(attention.heads), kNoSink);
}

void softmax(std::span<double> row, double sink) {
  const double largest = std::max(*std::ranges::max_element(row), sink);
  Sum sum;
  for (double& score : row) sum.add(score = std::exp(score - largest));
  if (sink != kNoSink) sum.add(std::exp(sink - largest));
  const double total = sum.value();
  for (double& probability : row) probability /= total;
}

void mix_row(const op::Attention& attention, std::span<const double> probs, const Matrix& v,
             int64_t kv_head, double* out) {
  constexpr size_t kBlock = 8;  // positions that are added up before they join the sum
  const auto width = static_cast<size_t>(attention.value_size);
  std::vector<double> block(width);
  std::vector<double> lost(width);
  std::fill_n(out, width, 0.0);
  for (size_t first = 0; first < probs.size(); first += kBlock) {
    std::ranges::fill(block, 0.0);
    bool seen = false;
    for (size_t p = first; p < std::min(probs.size(), first + kBlock); ++p) {
      if (probs[p] == 0) continue;  // out of sight, whatever v holds there
      const double* value = v.row(static_cast<int64_t>(p)) + kv_head * attention.value_size;
      for (size_t d = 0; d < width; ++d) block[d] += probs[p] * value[d];
      seen = true;
    }
    if (!seen) continue;
    for (size_t d = 0; d < width; ++d) add_exactly(block[d], out[d], lost[d]);
  }
  for (size_t d = 0; d < width; ++d) out[d] = with_lost(out[d], lost[d]);
}

Matrix evaluate(const op::What& what, std::span<const Matrix* const> inputs, int64_t width,
                const Place& place, int threads, Scores* scores) {
  // All ops keep the number of rows; only Embed has no input to take it from.
  const int64_t rows = inputs.empty() ? static_cast<int64_t>(place.tokens.size()) : inputs[0]->rows;
  Matrix out(rows, width);
  std::visit(Call{inputs, place, threads, scores, out}, what);
  return out;
}

}  // namespace lockstep::exec::reference
