// A recorded choice of experts is right where the router's numbers lead to it, but for ties that
// rounding explains. The order of the experts says nothing: an engine may have any.
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

}  // namespace

std::optional<std::vector<OwnError>> Replay::judge_experts_chosen(op::ValueId id,
                                                                  Positions positions) {
  const op::Op& op = *producer_[static_cast<size_t>(id)];
  const auto& choose = std::get<op::Choose>(op.what);
  const auto actual = actual_rows(id, positions);
  const Estimated router = obtain_input(op, 0, positions);
  if (!actual || router == nullptr) return std::nullopt;
  const std::vector<double> bias = decoded_bias(choose);
  const Arithmetic arithmetic = arithmetic_of_op(op, id);
  const auto experts = static_cast<size_t>(router->value.columns);
  std::vector<OwnError> out(positions.size());
  parallel_rows(actual->rows, 16 * router->value.columns, threads_, [&](int64_t r) {
    // What samples of the router show beyond the variance of each number counts too.
    std::vector<double> variance;
    if (!router->variance.values.empty()) {
      variance.assign(router->variance.row(r), router->variance.row(r) + experts);
      for (const Matrix& sample : router->samples)
        for (size_t e = 0; e < experts; ++e)
          variance[e] += square(sample.row(r)[e] - router->value.row(r)[e]) / kSamples;
    }
    const std::span<const double> numbers(router->value.row(r), experts);
    const ExpertScores scores = expert_scores(choose, bias, numbers, variance, arithmetic);
    const ExpertChoice choice =
        judge_experts(choose, scores, {actual->row(r), static_cast<size_t>(actual->columns)});
    OwnError& own = out[static_cast<size_t>(r)];
    own.position = positions[static_cast<size_t>(r)];
    if (router->tainted[static_cast<size_t>(r)] || choice.gap == 0) return;
    own.error = choice.gap;
    own.expected = choice.deviation * kElementLimit / kRowLimit;
    own.worst_index = choice.slot;
    own.worst_ratio = choice.deviation > 0 ? choice.gap / choice.deviation
                                           : std::numeric_limits<double>::infinity();
    own.recorded = actual->row(r)[choice.slot];
    own.replayed = static_cast<double>(choice.better);
  });
  return out;
}

}  // namespace lockstep::parity
