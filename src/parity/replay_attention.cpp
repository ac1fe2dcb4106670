// Attention is replayed from the nearest part that was recorded: probabilities, scores, or q and k.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/parallel.h"
#include "parity/deviate.h"
#include "parity/replay.h"

namespace lockstep::parity {
namespace {

namespace reference = exec::reference;

constexpr double kHidden = -std::numeric_limits<double>::infinity();  // a masked score

enum class AttentionPart { kMix, kScores, kProbs };

struct AttentionReplay {
  const op::Attention& attention;
  AttentionPart part;              // wanted
  const Matrix* probs = nullptr;   // [rows, heads * width] where recorded and of use
  const Matrix* scores = nullptr;  // the same
  std::span<const int64_t> positions;
  int64_t width;  // of scores
  int64_t last;   // position: k and v have one row more
  const Arithmetic& arithmetic;
  int threads;
  std::vector<double> sinks = reference::sinks_of(attention);
  const op::Deviation* deviation = nullptr;
  std::span<const int64_t> step_ends = {};  // by row, where the deviation sees otherwise

  int64_t columns() const {
    return attention.heads * (part == AttentionPart::kMix ? attention.value_size : width);
  }

  // `variance` may be null.
  Matrix run(const Matrix& q, const Matrix& k, const Matrix& v, Matrix* variance) const {
    const auto count = static_cast<int64_t>(positions.size());
    Matrix out(count, columns());
    const auto rounded = [&](const Operand& operand, const Matrix& matrix) {
      return variance != nullptr && operand.rounds() ? round_rows(operand, matrix) : Rounded();
    };
    const Rounded of_q = rounded(query_operand(arithmetic), q);
    const Rounded of_k = rounded(arithmetic.cache, k);
    const Rounded of_v = rounded(arithmetic.cache, v);
    const auto factors = [](const Matrix& matrix, const Rounded& as) {
      return Factors(matrix, as.errors.values.empty() ? nullptr : &as);
    };
    const Matrix keys_by_column = scores == nullptr && probs == nullptr ? key_columns(k) : Matrix();
    const auto heads_and_rows = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        one(i / count, i % count, factors(q, of_q), factors(k, of_k), keys_by_column,
            factors(v, of_v), out, variance);
    };
    parallel_for(attention.heads * count, 4, heads_and_rows, threads);
    return out;
  }

 private:
  // The keys that scores are computed for.
  reference::Seen keys_of(size_t r) const {
    if (deviation != nullptr && deviation->sees) return {0, std::min(last + 1, step_ends[r])};
    return reference::seen_by(attention, positions[r]);
  }

  void one(int64_t head, int64_t r, const Factors& q, const Factors& k,
           const Matrix& keys_by_column, const Factors& v, Matrix& out, Matrix* variance) const {
    const auto n = static_cast<size_t>(width);
    const int64_t kv_head = deviation != nullptr && deviation->kv_head
                                ? deviation->kv_head(head)
                                : head / (attention.heads / attention.kv_heads);
    std::vector<double> row(n, kHidden);
    std::vector<double> score_variances(n);
    const auto finish = [&](const std::vector<double>& values, const std::vector<double>& spread) {
      std::ranges::copy(values, out.row(r) + head * width);
      if (variance != nullptr) std::ranges::copy(spread, variance->row(r) + head * width);
    };
    // The keys that count: all others have no share.
    reference::Seen seen{0, part == AttentionPart::kMix ? last + 1 : width};
    if (scores != nullptr) {
      std::copy_n(scores->row(r) + head * width, width, row.begin());
    } else if (probs == nullptr) {
      seen = keys_of(static_cast<size_t>(r));
      score_keys(attention, q, r, head, k, keys_by_column, kv_head, seen.first, seen.end,
                 arithmetic, row,
                 variance != nullptr ? std::span(score_variances) : std::span<double>());
      if (deviation != nullptr && deviation->sees)
        for (int64_t key = seen.first; key < seen.end; ++key)
          if (!deviation->sees(positions[static_cast<size_t>(r)], key)) {
            row[static_cast<size_t>(key)] = deviation->hidden;
            score_variances[static_cast<size_t>(key)] = 0;
          }
    }
    if (part == AttentionPart::kScores) return finish(row, score_variances);
    std::vector<double> prob_variances(n);
    if (probs != nullptr) {
      std::copy_n(probs->row(r) + head * width, width, row.begin());
    } else {
      const auto some = [&](std::vector<double>& numbers) {
        return std::span(numbers).subspan(static_cast<size_t>(seen.first),
                                          static_cast<size_t>(seen.end - seen.first));
      };
      std::vector<double> raw = row;
      std::ranges::fill(row, 0.0);
      std::ranges::copy(some(raw), some(row).begin());
      const double sink = sinks[static_cast<size_t>(head)];
      reference::softmax(some(row), sink);
      if (variance != nullptr)
        softmax_variance(some(raw), some(row), some(score_variances), sink, arithmetic,
                         some(prob_variances));
    }
    if (part == AttentionPart::kProbs) return finish(row, prob_variances);
    const int64_t place = head * attention.value_size;
    mix_values(attention, std::span<const double>(row).first(static_cast<size_t>(seen.end)),
               prob_variances, v, kv_head, arithmetic, out.row(r) + place,
               variance != nullptr ? variance->row(r) + place : nullptr);
  }
};

}  // namespace

std::optional<Replay::Outcome> Replay::evaluate_attention(const op::Op& op, op::ValueId id,
                                                          Positions positions) {
  const AttentionPart part = id == op.outputs[0]   ? AttentionPart::kMix
                             : id == op.outputs[1] ? AttentionPart::kScores
                                                   : AttentionPart::kProbs;
  const bool from_probs = part == AttentionPart::kMix && recorded(op.outputs[2], positions);
  const bool from_scores =
      !from_probs && part != AttentionPart::kScores && recorded(op.outputs[1], positions);
  int64_t width = score_width(op, positions);
  const op::Deviation* deviation = deviation_of(op);
  const bool sees_otherwise = deviation != nullptr && deviation->sees;
  std::vector<int64_t> step_ends;
  if (sees_otherwise && !from_probs && !from_scores)
    for (const int64_t position : positions) {
      step_ends.push_back(step_end(trace_, position));
      if (part == AttentionPart::kMix) width = std::max(width, step_ends.back());
    }
  // The engine's own step may reach beyond the positions that were asked for; what it saw there
  // counts where it recorded that it did.
  const int64_t last = from_probs || from_scores || sees_otherwise
                           ? width - 1
                           : *std::ranges::max_element(positions);
  // For all rows that are judged now, so that they are found only once.
  std::vector<int64_t> all(static_cast<size_t>(std::max(last + 1, end_)));
  std::iota(all.begin(), all.end(), int64_t{0});
  Matrix start;
  if (from_probs || from_scores) start = read(op.outputs[from_probs ? 2 : 1], positions);

  std::vector<Estimated> inputs(3);
  for (size_t i = 0; i < 3; ++i) {
    const bool needed = i == 2 ? part == AttentionPart::kMix : !from_probs && !from_scores;
    if (!needed) continue;
    inputs[i] = obtain_input(op, i, i == 0 ? positions : Positions(all));
    if (inputs[i] == nullptr) return std::nullopt;
  }
  const Arithmetic arithmetic = arithmetic_of_op(op, id);
  const AttentionReplay replay{.attention = std::get<op::Attention>(op.what),
                               .part = part,
                               .probs = from_probs ? &start : nullptr,
                               .scores = from_scores ? &start : nullptr,
                               .positions = positions,
                               .width = width,
                               .last = last,
                               .arithmetic = arithmetic,
                               .threads = threads_,
                               .deviation = deviation,
                               .step_ends = step_ends};
  const Matrix none;
  const auto value_of = [&](const Estimated& e) -> const Matrix& {
    return e != nullptr ? e->value : none;
  };
  Outcome out;
  Estimate& estimate = out.estimate;
  const auto count = static_cast<int64_t>(positions.size());
  if (rounding_) out.own = Matrix(count, replay.columns());
  const auto run = [&](const Matrix& q, const Matrix& k, const Matrix& v, Matrix* variance) {
    Matrix result = replay.run(q, k, v, variance);
    if (deviation != nullptr && part == AttentionPart::kMix) deviate(*deviation, {}, {}, result);
    return result;
  };
  estimate.value = run(value_of(inputs[0]), value_of(inputs[1]), value_of(inputs[2]),
                       rounding_ ? &out.own : nullptr);
  if (deviation != nullptr && part == AttentionPart::kMix && rounding_)
    deviate_variance(*deviation, out.own);
  estimate.variance = out.own;
  // Engines multiply what is out of sight by 0, which does not remove a NaN: any row may have it.
  estimate.tainted.resize(positions.size());
  for (size_t r = 0; r < positions.size(); ++r) {
    const auto taint = [&](const Estimated& e) {
      return e != nullptr && std::ranges::find(e->tainted, true) != e->tainted.end();
    };
    estimate.tainted[r] = taint(inputs[1]) || taint(inputs[2]) ||
                          (inputs[0] != nullptr && inputs[0]->tainted[r]) ||
                          std::any_of(start.row(static_cast<int64_t>(r)),
                                      start.row(static_cast<int64_t>(r)) + start.columns,
                                      [](double x) { return std::isnan(x) || x == -kHidden; });
  }
  sample([&](std::span<const Matrix* const> in) { return run(*in[0], *in[1], *in[2], nullptr); },
         inputs, estimate);
  return out;
}

}  // namespace lockstep::parity
