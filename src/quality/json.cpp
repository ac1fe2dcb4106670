#include "quality/quality.h"

namespace lockstep::quality {
namespace {

using nlohmann::ordered_json;

// JSON has no word for NaN: null then.
ordered_json interval_json(const Interval& interval) {
  return {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
}

ordered_json ranking_json(const Ranking& ranking) {
  ordered_json out = {{"tokens", ranking.tokens},        {"windows", ranking.windows},
                      {"window", ranking.window},        {"least_context", ranking.context},
                      {"blocks", ranking.blocks},        {"kl_mean", interval_json(ranking.kl)},
                      {"tensors", ordered_json::array()}};
  for (const TensorCost& tensor : ranking.tensors)
    out["tensors"].push_back({{"name", tensor.name},
                              {"type_reference", tensor.format_reference->name},
                              {"type_suspect", tensor.format_suspect->name},
                              {"values", tensor.values},
                              {"bytes_reference", tensor.bytes_reference},
                              {"bytes_suspect", tensor.bytes_suspect},
                              {"equal", tensor.equal},
                              {"kl_alone", interval_json(tensor.alone)},
                              {"kl_saved", interval_json(tensor.saved)}});
  return out;
}

ordered_json recipe_json(const Proposal& proposal, const std::string& path) {
  ordered_json out = {{"path", path},
                      {"bytes", proposal.bytes},
                      {"values", proposal.values},
                      {"kl_estimated", proposal.kl},
                      {"probed", proposal.probed},
                      {"tensors", ordered_json::array()}};
  for (const Proposal::Line& line : proposal.lines)
    out["tensors"].push_back(
        {{"name", line.name}, {"type", line.format->name}, {"kl_estimated", line.kl}});
  return out;
}

}  // namespace

ordered_json to_json(const Report& report) {
  const Cost& cost = report.cost;
  ordered_json out = {
      {"reference", report.reference},
      {"suspect", report.suspect},
      {"device", report.device},
      {"values", report.values},
      {"bytes_reference", report.bytes_reference},
      {"bytes_suspect", report.bytes_suspect},
      {"text_tokens", report.text_tokens},
      {"window", report.window},
      {"least_context", report.context},
      {"tokens", cost.tokens},
      {"blocks", cost.blocks},
      {"interval", "95%, bootstrap over blocks of consecutive tokens"},
      {"perplexity_reference", interval_json(cost.perplexity_reference)},
      {"perplexity_suspect", interval_json(cost.perplexity_suspect)},
      {"perplexity_ratio", interval_json(cost.perplexity_ratio)},
      {"kl_mean", interval_json(cost.kl_mean)},
      {"kl_median", interval_json(cost.kl_median)},
      {"kl_p99", interval_json(cost.kl_p99)},
      {"same_choice", interval_json(cost.same)},
  };
  out["by_tensor"] = report.ranked ? ranking_json(report.ranking) : ordered_json(nullptr);
  out["recipe"] =
      report.proposal ? recipe_json(*report.proposal, report.recipe_path) : ordered_json(nullptr);
  return out;
}

}  // namespace lockstep::quality
