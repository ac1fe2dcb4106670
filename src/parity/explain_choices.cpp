// The next token: how much of the divergence of the sides comes from the weights. Both files are
// run in double precision on the tokens that the sides share.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/progress.h"
#include "exec/registry.h"
#include "parity/explain.h"
#include "parity/metrics.h"
#include "parity/powers.h"

namespace lockstep::parity {
namespace {

// Logits of a step, in numbers.
constexpr int64_t kLogitsAtATime = 1 << 22;

std::vector<double> probabilities(std::span<const double> logits) {
  Powers powers(logits);
  for (double& each : powers.each) each /= powers.sum;
  return std::move(powers.each);
}

// The four rows of logits of one position, as long as all of them are.
struct FourRows {
  std::vector<double> reference, suspect, exact_reference, exact_suspect;
};

// How the second distribution's divergence from the first is shared out: by covariances under the
// probabilities of the first, which shifts of all logits leave as they are.
std::array<double, kOrigins> shares_of(const FourRows& rows) {
  const std::vector<double> weight = probabilities(rows.reference);
  const auto difference = [](const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> out(a.size());
    for (size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
    return out;
  };
  const auto mean = [&](const std::vector<double>& numbers) {
    return std::transform_reduce(numbers.begin(), numbers.end(), weight.begin(), 0.0);
  };
  const std::vector<double> whole = difference(rows.suspect, rows.reference);
  const double mean_of_whole = mean(whole);
  const auto covariance = [&](const std::vector<double>& part) {
    const double mean_of_part = mean(part);
    double sum = 0;
    for (size_t i = 0; i < part.size(); ++i)
      sum += weight[i] * (part[i] - mean_of_part) * (whole[i] - mean_of_whole);
    return sum;
  };
  const double all = covariance(whole);
  std::array<double, kOrigins> out{};
  if (!(all > 0)) return out;
  const auto put = [&](Origin origin, const std::vector<double>& a, const std::vector<double>& b) {
    out[static_cast<size_t>(origin)] = covariance(difference(a, b)) / all;
  };
  put(Origin::kWeights, rows.exact_suspect, rows.exact_reference);
  put(Origin::kRounding, rows.suspect, rows.exact_suspect);
  put(Origin::kReferenceRounding, rows.exact_reference, rows.reference);
  return out;
}

void add(const FourRows& rows, ExplainedChoices& out) {
  const LogitMetrics all = logit_metrics(rows.reference, rows.suspect);
  const LogitMetrics weights = logit_metrics(rows.exact_reference, rows.exact_suspect);
  const LogitMetrics rounding = logit_metrics(rows.exact_suspect, rows.suspect);
  const LogitMetrics of_reference = logit_metrics(rows.exact_reference, rows.reference);
  for (const LogitMetrics* each : {&all, &weights, &rounding, &of_reference})
    if (!each->kl_divergence) return;  // a NaN, which has been told
  ++out.positions;
  out.same += all.reference_choice == all.suspect_choice ? 1 : 0;
  out.same_by_weights += weights.reference_choice == weights.suspect_choice ? 1 : 0;
  out.divergence += *all.kl_divergence;
  out.weights_alone += *weights.kl_divergence;
  out.rounding_alone += *rounding.kl_divergence;
  out.reference_rounding_alone += *of_reference.kl_divergence;
  const auto shares = shares_of(rows);
  for (size_t p = 0; p < kOrigins; ++p) out.parts[p] += *all.kl_divergence * shares[p];
}

// Positions with whole logits on both sides.
std::vector<int64_t> positions_of(const Traces& traces, const Scope& scope) {
  std::vector<int64_t> out;
  for (const int64_t position : scope.judged) {
    const auto a = traces.reference.row("logits", position);
    const auto b = traces.suspect.row("logits", position);
    if (a && b && std::min(a->width, b->width) >= scope.whole_logits) out.push_back(position);
  }
  return out;
}

// A clause; empty: they can be had.
std::string why_not(const Scope& scope, const std::vector<int64_t>& positions) {
  if (positions.empty()) return "no position has all logits on both sides";
  if (scope.sampled) return "only a sample of the positions was asked for (--budget)";
  for (const SideScope* side : {&scope.reference, &scope.suspect}) {
    if (side->forwards.front().early)
      return fmt::format("the context of the {} grows with its positions", side->name);
    if (positions.back() >= std::ssize(side->tokens))
      return fmt::format("the {} does not say its tokens", side->name);
  }
  return "";
}

}  // namespace

Result<void> explain_choices(const Traces& traces, const Scope& scope, int threads,
                             Explanation& out) {
  const std::vector<int64_t> positions = positions_of(traces, scope);
  out.no_choices = why_not(scope, positions);
  if (!out.no_choices.empty()) return {};
  LS_TRY(const auto* device, exec::find_device("reference"));
  std::vector<op::Program> programs;
  for (const SideScope* side : {&scope.reference, &scope.suspect}) {
    programs.push_back(side->forwards.front().program);
    programs.back().context_length = positions.back() + 1;
  }
  exec::Options options;
  options.threads = threads;
  std::vector<std::unique_ptr<exec::Executor>> executors;
  for (const op::Program& program : programs) {
    auto made = device->create(program, options);
    if (!made.ok()) {
      out.no_choices = made.error().message;
      return {};
    }
    executors.push_back(std::move(*made));
  }
  const int64_t widest = std::max(programs[0].vocabulary, programs[1].vocabulary);
  const int64_t at_a_time = std::clamp<int64_t>(kLogitsAtATime / widest, 1, 256);
  const std::span<const int32_t> tokens = scope.reference.tokens;
  ExplainedChoices sums;
  Progress progress("running both files", positions.back() + 1, "positions");
  auto next = positions.begin();
  for (int64_t first = 0; next != positions.end(); first += at_a_time) {
    const int64_t count = std::min(at_a_time, positions.back() + 1 - first);
    std::vector<View> logits;
    for (const auto& executor : executors) {
      const auto some = tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
      LS_TRY(logits.emplace_back(), executor->run({some, true, nullptr, nullptr}));
    }
    for (; next != positions.end() && *next < first + count; ++next) {
      const auto a = *traces.reference.row("logits", *next);
      const auto b = *traces.suspect.row("logits", *next);
      const int64_t width = std::min({a.width, b.width, logits[0].shape[1], logits[1].shape[1]});
      const auto exact = [&](const View& view) {
        std::vector<double> row(static_cast<size_t>(width));
        for (int64_t i = 0; i < width; ++i)
          row[static_cast<size_t>(i)] = view.at((*next - first) * view.shape[1] + i);
        return row;
      };
      add({row_values(a, width), row_values(b, width), exact(logits[0]), exact(logits[1])}, sums);
    }
    traces.reference.release_pages();
    traces.suspect.release_pages();
    progress.advance(count);
  }
  if (sums.positions == 0) {
    out.no_choices = "no position has finite logits on both sides";
    return {};
  }
  const auto count = static_cast<double>(sums.positions);
  for (double* each : {&sums.divergence, &sums.weights_alone, &sums.rounding_alone,
                       &sums.reference_rounding_alone})
    *each /= count;
  for (double& each : sums.parts) each /= count;
  out.choices = sums;
  return {};
}

}  // namespace lockstep::parity
