#include "parity/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/parallel.h"
#include "base/random.h"

namespace lockstep::parity {
namespace {

namespace reference = exec::reference;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Engines mask with minus infinity or with a number that leaves nothing after the softmax.
constexpr double kMasked = -3e4;

bool is_scores(const op::Program& program, op::ValueId id) {
  return program.value(id).shape == op::Value::Shape::kScores;
}

DType stored_dtype(const trace::Trace& trace) {
  const auto& checkpoints = trace.manifest().checkpoints;
  return checkpoints.empty() ? DType::kF32 : checkpoints.front().dtype;
}

std::vector<const Matrix*> pointers(const std::vector<Matrix>& matrices) {
  std::vector<const Matrix*> out;
  for (const Matrix& matrix : matrices) out.push_back(&matrix);
  return out;
}

OwnError compare_row(std::span<const double> recorded, std::span<const double> replayed,
                     std::span<const double> variance, int64_t position) {
  OwnError out;
  out.position = position;
  double errors = 0;
  double expected = 0;
  int64_t count = 0;
  for (size_t i = 0; i < recorded.size(); ++i) {
    const double actual = recorded[i];
    const double truth = replayed[i];
    if (std::isnan(truth) && std::isnan(actual)) continue;
    if (truth == actual && std::isinf(truth)) continue;
    if (truth == -kInfinity && actual <= kMasked) continue;
    if (!std::isfinite(truth) || !std::isfinite(actual)) {
      if (!out.non_finite) {
        out.worst_index = static_cast<int64_t>(i);
        out.recorded = actual;
        out.replayed = truth;
      }
      out.non_finite = true;
      continue;
    }
    errors += (actual - truth) * (actual - truth);
    expected += variance[i];
    ++count;
  }
  if (count == 0) return out;
  out.error = std::sqrt(errors / static_cast<double>(count));
  out.expected = std::sqrt(expected / static_cast<double>(count));
  if (out.non_finite) return out;
  // An element's own expectation may be tiny by chance; a tenth of the row's is always granted.
  for (size_t i = 0; i < recorded.size(); ++i) {
    const double error = std::fabs(recorded[i] - replayed[i]);
    if (!(error > 0) || !std::isfinite(error)) continue;
    const double own = std::sqrt(variance[i] + 0.01 * out.expected * out.expected);
    const double ratio = own > 0 ? error / own : kInfinity;
    if (ratio > out.worst_ratio) {
      out.worst_ratio = ratio;
      out.worst_index = static_cast<int64_t>(i);
      out.recorded = recorded[i];
      out.replayed = replayed[i];
    }
  }
  return out;
}

}  // namespace

double OwnError::ratio() const {
  if (error == 0) return 0;
  const double row = expected > 0 ? error / (kRowLimit * expected) : kInfinity;
  return std::max(row, worst_ratio / kElementLimit);
}

Replay::Replay(const op::Program& program, const trace::Trace& trace,
               std::span<const int32_t> tokens, int threads)
    : program_(program),
      trace_(trace),
      tokens_(tokens.begin(), tokens.end()),
      producer_(program.values.size()),
      arithmetic_(arithmetic_of(trace.manifest().engine.precision, stored_dtype(trace))),
      threads_(threads) {
  for (const op::Op& op : program.ops)
    for (const op::ValueId id : op.outputs) producer_[static_cast<size_t>(id)] = &op;
}

bool Replay::recorded(op::ValueId id, Positions positions) const {
  const std::string& name = program_.value(id).name;
  return trace_.has(name) &&
         std::ranges::all_of(positions, [&](int64_t p) { return trace_.row(name, p).has_value(); });
}

// Rows of a recorded value. Attention scores become [positions, heads * width], the widest width.
std::optional<Matrix> Replay::read(op::ValueId id, Positions positions) const {
  const op::Value& value = program_.value(id);
  std::vector<trace::Trace::Row> rows;
  int64_t width = is_scores(program_, id) ? 0 : value.width;
  for (const int64_t position : positions) {
    const auto row = trace_.row(value.name, position);
    if (!row) return std::nullopt;
    if (is_scores(program_, id)) {
      if (row->lines != value.width || row->width <= position) return std::nullopt;
      width = std::max(width, row->width);
    } else if (row->width < value.width) {
      // A vocabulary without its padding is judged as far as it goes.
      if (id != program_.logits()) return std::nullopt;
      width = std::min(width, row->width);
    }
    rows.push_back(*row);
  }
  const int64_t lines = is_scores(program_, id) ? value.width : 1;
  Matrix out(static_cast<int64_t>(rows.size()), lines * width);
  // Beyond what was recorded nothing is seen.
  const double nothing = value.name.ends_with("attn_scores") ? -kInfinity : 0;
  if (lines > 1) std::ranges::fill(out.values, nothing);
  for (size_t r = 0; r < rows.size(); ++r)
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t i = 0; i < std::min(width, rows[r].width); ++i)
        out.row(static_cast<int64_t>(r))[line * width + i] = rows[r].at(line, i);
  return out;
}

// A trace that keeps fewer digits than the engine hands on does not hold the op's true inputs.
Replay::Estimate Replay::with_storage_error(Matrix rows) const {
  Estimate out{std::move(rows), {}};
  if (!stored_coarsely()) return out;
  out.variance = Matrix(out.value.rows, out.value.columns);
  for (size_t i = 0; i < out.value.values.size(); ++i) {
    const double error = out.value.values[i] * arithmetic_.stored;
    if (std::isfinite(error)) out.variance.values[i] = error * error / 3;
  }
  return out;
}

std::optional<Replay::Estimate> Replay::obtain(op::ValueId id, Positions positions) {
  if (recorded(id, positions)) {
    auto rows = read(id, positions);
    if (rows) return with_storage_error(std::move(*rows));
  }
  return derive(id, positions);
}

std::optional<Replay::Estimate> Replay::derive(op::ValueId id, Positions positions) {
  const op::Op& op = *producer_[static_cast<size_t>(id)];
  if (std::holds_alternative<op::Attention>(op.what)) return derive_attention(op, id, positions);
  std::vector<Estimate> inputs;
  for (const op::ValueId input : op.inputs) {
    auto estimate = obtain(input, positions);
    if (!estimate) return std::nullopt;
    inputs.push_back(std::move(*estimate));
  }
  std::vector<int32_t> tokens;
  for (const int64_t position : positions) {
    if (position >= static_cast<int64_t>(tokens_.size())) return std::nullopt;
    tokens.push_back(tokens_[static_cast<size_t>(position)]);
  }
  const Place place{tokens, positions};
  const int64_t width = program_.value(id).width;
  std::vector<const Matrix*> values;
  for (const Estimate& input : inputs) values.push_back(&input.value);
  Estimate out;
  out.value = reference::evaluate(op.what, values, width, place, threads_);
  out.variance = rounding_variance(op.what, values, out.value, place, arithmetic_, threads_);
  propagate(
      [&](std::span<const Matrix* const> in) {
        return reference::evaluate(op.what, in, width, place, threads_);
      },
      inputs, out);
  return out;
}

std::optional<Replay::Estimate> Replay::derive_attention(const op::Op& op, op::ValueId id,
                                                         Positions positions) {
  const auto& attention = std::get<op::Attention>(op.what);
  const op::ValueId mix_id = op.outputs[0];
  const op::ValueId scores_id = op.outputs[1];
  const op::ValueId probs_id = op.outputs[2];
  const int64_t last = *std::ranges::max_element(positions);
  std::vector<int64_t> all(static_cast<size_t>(last + 1));
  std::iota(all.begin(), all.end(), int64_t{0});
  const auto count = static_cast<int64_t>(positions.size());

  // The nearest recorded part decides where the replay starts.
  const bool exact = !stored_coarsely();
  const bool from_probs = exact && id == mix_id && recorded(probs_id, positions);
  const bool from_scores =
      exact && !from_probs && id != scores_id && recorded(scores_id, positions);
  std::vector<Estimate> inputs(3);
  for (size_t i = 0; i < 3; ++i) {
    const bool needed = i == 2 ? id == mix_id : !from_probs && !from_scores;
    if (!needed) continue;
    auto estimate = obtain(op.inputs[i], i == 0 ? positions : Positions(all));
    if (!estimate) return std::nullopt;
    inputs[i] = std::move(*estimate);
  }
  std::optional<Matrix> start;
  if (from_probs || from_scores) {
    start = read(from_probs ? probs_id : scores_id, positions);
    if (!start) return std::nullopt;
  }
  int64_t width = last + 1;
  if (start) width = start->columns / attention.heads;
  if (id != mix_id)
    for (const int64_t position : positions)
      if (const auto row = trace_.row(program_.value(id).name, position))
        width = std::max(width, row->width);

  const int64_t columns =
      id == mix_id ? attention.heads * attention.value_size : attention.heads * width;
  const auto run = [&](const Matrix& q, const Matrix& k, const Matrix& v, Matrix* variance) {
    Matrix out(count, columns);
    const auto heads_and_rows = [&](int64_t begin, int64_t end) {
      const auto n = static_cast<size_t>(width);
      std::vector<double> scores(n), score_variances(n), probs(n), prob_variances(n);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i / count;
        const int64_t r = i % count;
        const int64_t kv_head = head / (attention.heads / attention.kv_heads);
        std::ranges::fill(score_variances, 0.0);
        std::ranges::fill(prob_variances, 0.0);
        std::ranges::fill(scores, -kInfinity);
        if (from_scores) {
          std::copy_n(start->row(r) + head * width, width, scores.begin());
        } else if (!from_probs) {
          const double* q_head = q.row(r) + head * attention.head_size;
          const auto seen = std::span(scores).first(static_cast<size_t>(last + 1));
          reference::score_row(attention, q_head, k, kv_head, positions[static_cast<size_t>(r)],
                               seen);
          if (variance != nullptr)
            score_variance(attention, q_head, k, kv_head, seen, arithmetic_, score_variances);
        }
        if (id == scores_id) {
          std::ranges::copy(scores, out.row(r) + head * width);
          if (variance != nullptr)
            std::ranges::copy(score_variances, variance->row(r) + head * width);
          continue;
        }
        if (from_probs) {
          std::copy_n(start->row(r) + head * width, width, probs.begin());
        } else {
          probs = scores;
          reference::softmax(probs);
          if (variance != nullptr)
            softmax_variance(scores, probs, score_variances, arithmetic_, prob_variances);
        }
        if (id == probs_id) {
          std::ranges::copy(probs, out.row(r) + head * width);
          if (variance != nullptr)
            std::ranges::copy(prob_variances, variance->row(r) + head * width);
          continue;
        }
        // Entries beyond the last position can only be padding, which must have no weight.
        const auto seen =
            std::span<const double>(probs).first(std::min(n, static_cast<size_t>(last + 1)));
        double* mix = out.row(r) + head * attention.value_size;
        reference::mix_row(attention, seen, v, kv_head, mix);
        if (variance != nullptr)
          mix_variance(attention, seen, prob_variances, v, kv_head, mix, arithmetic_,
                       variance->row(r) + head * attention.value_size);
      }
    };
    parallel_for(attention.heads * count, 1, heads_and_rows, threads_);
    return out;
  };
  Estimate out;
  out.variance = Matrix(count, columns);
  out.value = run(inputs[0].value, inputs[1].value, inputs[2].value, &out.variance);
  propagate([&](std::span<const Matrix* const> in) { return run(*in[0], *in[1], *in[2], nullptr); },
            inputs, out);
  return out;
}

// Adds what uncertain inputs do to the output: evaluated again with inputs that are off by as much
// as rounding makes them, as the mean square over each row.
void Replay::propagate(const std::function<Matrix(std::span<const Matrix* const>)>& evaluate,
                       const std::vector<Estimate>& inputs, Estimate& out) {
  if (std::ranges::all_of(inputs, [](const Estimate& e) { return e.variance.values.empty(); }))
    return;
  constexpr int kSamples = 2;
  Random random(1);
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<Matrix> moved;
    for (const Estimate& input : inputs) {
      Matrix& matrix = moved.emplace_back(input.value);
      for (size_t i = 0; i < input.variance.values.size(); ++i)
        matrix.values[i] += std::sqrt(input.variance.values[i]) * random.gaussian();
    }
    const Matrix other = evaluate(pointers(moved));
    for (int64_t r = 0; r < out.value.rows; ++r) {
      double squares = 0;
      int64_t finite = 0;
      for (int64_t i = 0; i < out.value.columns; ++i) {
        const double difference = other.row(r)[i] - out.value.row(r)[i];
        if (!std::isfinite(difference)) continue;
        squares += difference * difference;
        ++finite;
      }
      if (finite == 0) continue;
      const double share = squares / static_cast<double>(finite) / kSamples;
      for (int64_t i = 0; i < out.value.columns; ++i) out.variance.row(r)[i] += share;
    }
  }
}

std::optional<std::vector<OwnError>> Replay::judge(op::ValueId id,
                                                   std::span<const int64_t> positions) {
  std::vector<int64_t> there;
  for (const int64_t position : positions)
    if (trace_.row(program_.value(id).name, position)) there.push_back(position);
  if (there.empty()) return std::nullopt;
  const auto actual = read(id, there);
  auto replayed = derive(id, there);
  if (!actual || !replayed) return std::nullopt;
  // Scores and probabilities that see different numbers of positions are not of one computation.
  if (is_scores(program_, id) && actual->columns != replayed->value.columns) return std::nullopt;
  LS_CHECK(actual->columns <= replayed->value.columns);
  std::vector<OwnError> out;
  const auto columns = static_cast<size_t>(actual->columns);
  for (size_t r = 0; r < there.size(); ++r) {
    const auto row = static_cast<int64_t>(r);
    out.push_back(compare_row({actual->row(row), columns}, {replayed->value.row(row), columns},
                              {replayed->variance.row(row), columns}, there[r]));
  }
  return out;
}

}  // namespace lockstep::parity
