// The cost of the whole file: both models read the text window by window, side by side, so that no
// more than one window's logits are in memory.
#include <algorithm>

#include "base/parallel.h"
#include "quality/distributions.h"
#include "quality/program_weights.h"
#include "quality/quality.h"

namespace lockstep::quality {
namespace {

Cost summarize(const std::vector<TokenScore>& scores, const std::vector<int64_t>& runs) {
  const Blocks blocks(number_blocks(runs));
  const auto column = [&](auto value_of) {
    std::vector<double> out(scores.size());
    std::ranges::transform(scores, out.begin(), value_of);
    return out;
  };
  const auto kl = column([](const TokenScore& s) { return s.kl; });
  Cost cost;
  cost.tokens = blocks.tokens();
  cost.blocks = blocks.count();
  cost.perplexity_reference =
      blocks.exp_of_mean(column([](const TokenScore& s) { return s.reference; }));
  cost.perplexity_suspect =
      blocks.exp_of_mean(column([](const TokenScore& s) { return s.suspect; }));
  cost.perplexity_ratio =
      blocks.exp_of_mean(column([](const TokenScore& s) { return s.suspect - s.reference; }));
  cost.kl_mean = blocks.mean(kl);
  cost.kl_median = blocks.quantile(kl, 0.5);
  cost.kl_p99 = blocks.quantile(kl, 0.99);
  cost.same = blocks.mean(column([](const TokenScore& s) { return s.same ? 1.0 : 0.0; }));
  return cost;
}

}  // namespace

Result<void> check_same_shape(const model::Model& reference, const model::Model& suspect) {
  LS_TRY(const op::Program a, reference.program(1));
  LS_TRY(const op::Program b, suspect.program(1));
  const std::string difference = shape_difference(a, b);
  if (!difference.empty())
    return error("{} and {} are not of one model: {}; 'lockstep audit' tells more",
                 reference.file().path(), suspect.file().path(), difference);
  return {};
}

Result<Cost> measure_cost(const model::Model& reference, const model::Model& suspect,
                          const std::vector<Window>& windows, const Setting& setting,
                          const Advance& advance) {
  int64_t longest = 0, all = 0, done = 0;
  for (const Window& window : windows) {
    longest = std::max(longest, static_cast<int64_t>(window.tokens.size()));
    all += window.scored();
  }
  LS_TRY(const op::Program reference_program, reference.program(longest));
  LS_TRY(const op::Program suspect_program, suspect.program(longest));
  LS_TRY(const auto reference_executor, setting.device->create(reference_program, setting.options));
  LS_TRY(const auto suspect_executor, setting.device->create(suspect_program, setting.options));
  const int threads = setting.options.threads > 0 ? setting.options.threads : available_cores();
  std::vector<TokenScore> scores;
  std::vector<int64_t> runs;
  for (const Window& window : windows) {
    LS_TRY(const LogitRows p,
           scored_logits(*reference_executor, window.tokens, window.first_scored));
    LS_TRY_VOID(check_finite(p, reference.file().path()));
    LS_TRY(const LogitRows q, scored_logits(*suspect_executor, window.tokens, window.first_scored));
    LS_TRY_VOID(check_finite(q, suspect.file().path()));
    const auto tokens = std::span(window.tokens).subspan(static_cast<size_t>(window.first_scored));
    for (const TokenScore& token : score_rows(p, q, tokens, threads)) scores.push_back(token);
    runs.push_back(window.scored());
    advance(done += window.scored(), all);
  }
  return summarize(scores, runs);
}

}  // namespace lockstep::quality
