#include "server/judgement.h"

#include <cmath>

namespace lockstep::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStageNames[] = {"waiting", "recording", "computing",
                                       "judging", "done",      "failed"};

size_t index_of(Judgement::Stage stage) {
  return static_cast<size_t>(stage);
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void Judgement::enter(Stage next) {
  if (over()) return;
  const auto now = Clock::now();
  seconds[index_of(stage)] += seconds_between(since, now);
  stage = next;
  since = now;
}

Json to_json(const Judgement& one) {
  Json seconds = Json::object();
  for (size_t i = 0; i < one.seconds.size(); ++i) {
    double spent = one.seconds[i];
    if (index_of(one.stage) == i) spent += seconds_between(one.since, Clock::now());
    seconds[kStageNames[i]] = std::round(spent * 1e3) / 1e3;
  }
  Json out = {{"id", one.id},
              {"job_id", one.answer->job_id},
              {"status", kStageNames[index_of(one.stage)]},
              {"tokens", std::ssize(one.answer->tokens)},
              {"tokens_recorded", one.recorded},
              {"positions", one.answer->fields.prompt_tokens.size() + one.answer->tokens.size()},
              {"seconds", seconds}};
  if (one.problem) out["error"] = to_json(*one.problem);
  if (one.verdict) {
    const JudgeVerdict& verdict = *one.verdict;
    const auto number = [](const std::optional<double>& value) {
      return value ? Json(*value) : Json(nullptr);
    };
    out["parity"] = verdict.parity;
    out["verdict"] = verdict.verdict;
    out["headline"] = verdict.headline;
    out["cause"] = verdict.cause.empty() ? Json(nullptr) : Json(verdict.cause);
    out["worst_ratio"] = number(verdict.worst_ratio);
    out["mean_kl"] = number(verdict.mean_kl);
    out["report"] = fmt::format("/judge/{}/report", one.id);
  }
  return out;
}

}  // namespace lockstep::server
