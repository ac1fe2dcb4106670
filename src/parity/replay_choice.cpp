// A recorded choice of experts is right where the router's numbers lead to it, but for ties that
// rounding explains. The order of the experts says nothing: an engine may have any.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "op/experts.h"
#include "parity/noise_experts.h"
#include "parity/replay.h"
#include "parity/rounding.h"
#include "quant/decode.h"

namespace lockstep::parity {
namespace {

std::vector<double> decoded_bias(const op::Choose& choose) {
  if (!choose.bias) return {};
  std::vector<float> floats(static_cast<size_t>(choose.bias->columns));
  quant::decode(choose.bias->format->format(), choose.bias->row(0), choose.bias->columns,
                floats.data());
  return {floats.begin(), floats.end()};
}

// What the right Choose would have compared and chosen, of an engine that deviates.
void undo_deviation(const op::Deviation& deviation, ExpertScores& of, std::vector<double>& chosen) {
  for (int64_t i = 0; i < deviation.skipped_experts; ++i)
    *std::ranges::max_element(of.scores) = -std::numeric_limits<double>::infinity();
  const auto experts = static_cast<double>(of.scores.size());
  for (double& number : chosen)
    if (deviation.expert_offset != 0)
      number = std::fmod(number - static_cast<double>(deviation.expert_offset) + experts, experts);
}

}  // namespace

// What Choose compared at these positions, with what rounding may have done to it.
std::vector<ExpertScores> Replay::scores_of_experts(const op::Op& op, op::ValueId id,
                                                    const Estimate& router) const {
  const auto& choose = std::get<op::Choose>(op.what);
  const std::vector<double> bias = decoded_bias(choose);
  const Arithmetic arithmetic = arithmetic_of_op(op, id);
  const auto experts = static_cast<size_t>(router.value.columns);
  std::vector<ExpertScores> out(static_cast<size_t>(router.value.rows));
  parallel_rows(router.value.rows, 16 * router.value.columns, threads_, [&](int64_t r) {
    // What samples of the router show beyond the variance of each number counts too.
    std::vector<double> variance;
    if (!router.variance.values.empty()) {
      variance.assign(router.variance.row(r), router.variance.row(r) + experts);
      for (const Matrix& sample : router.samples)
        for (size_t e = 0; e < experts; ++e)
          variance[e] += square(sample.row(r)[e] - router.value.row(r)[e]) / kSamples;
    }
    out[static_cast<size_t>(r)] =
        expert_scores(choose, bias, {router.value.row(r), experts}, variance, arithmetic);
  });
  return out;
}

std::optional<std::vector<OwnError>> Replay::judge_experts_chosen(op::ValueId id,
                                                                  Positions positions) {
  const op::Op& op = *producer_[static_cast<size_t>(id)];
  const auto& choose = std::get<op::Choose>(op.what);
  const auto actual = actual_rows(id, positions);
  const Estimated router = obtain_input(op, 0, positions);
  if (!actual || router == nullptr) return std::nullopt;
  std::vector<ExpertScores> scores = scores_of_experts(op, id, *router);
  const op::Deviation* deviation = deviation_of(op);
  std::vector<OwnError> out(positions.size());
  for (size_t r = 0; r < positions.size(); ++r) {
    const double* row = actual->row(static_cast<int64_t>(r));
    std::vector<double> chosen(row, row + actual->columns);
    if (deviation != nullptr) undo_deviation(*deviation, scores[r], chosen);
    const ExpertChoice choice = judge_experts(choose, scores[r], chosen);
    OwnError& own = out[r];
    own.position = positions[r];
    if (router->tainted[r] || choice.gap == 0) continue;
    own.error = choice.gap;
    own.expected = choice.deviation * kElementLimit / kRowLimit;
    own.worst_index = choice.slot;
    own.worst_ratio = choice.deviation > 0 ? choice.gap / choice.deviation
                                           : std::numeric_limits<double>::infinity();
    own.recorded = row[choice.slot];
    own.replayed = static_cast<double>(choice.better);
  }
  return out;
}

// A choice that was not recorded is what the router leads to. Where rounding may have led to
// another one, or where what was recorded of experts has an order that nobody knows, nothing can be
// said of it, nor of what follows from it: it is no number then.
void Replay::leave_open_choices(op::ValueId id, Positions positions, Estimate& out) {
  const op::Op& op = *producer_[static_cast<size_t>(id)];
  const auto& choose = std::get<op::Choose>(op.what);
  const Estimated router = obtain_input(op, 0, positions);
  if (router == nullptr) return;
  const bool any_order = std::ranges::any_of(program_.ops, [&](const op::Op& reader) {
    return std::ranges::find(reader.inputs, id) != reader.inputs.end() &&
           trace_.has(program_.value(reader.outputs[0]).name);
  });
  const std::vector<ExpertScores> scores = scores_of_experts(op, id, *router);
  for (size_t r = 0; r < positions.size(); ++r) {
    const auto row = static_cast<int64_t>(r);
    const std::span<const double> choice(out.value.row(row),
                                         static_cast<size_t>(out.value.columns));
    const bool open = any_order || !is_certain(choose, scores[r], choice);
    derived_choices_[{id, positions[r]}] = open;
    if (!open) continue;
    const auto clear = [&](Matrix& matrix) {
      std::fill_n(matrix.row(row), matrix.columns, std::numeric_limits<double>::quiet_NaN());
    };
    clear(out.value);
    for (Matrix& sample : out.samples) clear(sample);
    out.tainted[r] = true;
  }
}

DerivedChoices Replay::derived_choices() const {
  DerivedChoices out;
  const auto add = [](int64_t position, Runs& runs) {  // in order
    if (runs.empty() || runs.back().second + 1 < position)
      runs.emplace_back(position, position);
    else
      runs.back().second = position;
  };
  for (const auto& [row, open] : derived_choices_) {
    DerivedChoices::Of& of = out.by_checkpoint[program_.value(row.first).name];
    add(row.second, of.all);
    if (open) add(row.second, of.open);
  }
  return out;
}

}  // namespace lockstep::parity
