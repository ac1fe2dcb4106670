// One answer's judgement, from its beginning on. Of the network thread, where nothing else is said.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/answers.h"
#include "server/judge.h"

namespace lockstep::server {

struct Judgement {
  enum class Stage { kWaiting, kRecording, kComputing, kJudging, kDone, kFailed };

  std::string id;
  std::shared_ptr<const Answer> answer;
  int64_t bytes = 0;  // of the disk

  Stage stage = Stage::kWaiting;
  Clock::time_point since = Clock::now();
  std::array<double, 4> seconds = {};  // by stage
  int64_t recorded = 0;                // tokens
  std::optional<JudgeVerdict> verdict;
  std::optional<ApiError> problem;

  std::string folder;   // of the thread, until that is through with it
  std::string why_not;  // the same

  bool over() const { return stage == Stage::kDone || stage == Stage::kFailed; }
  void enter(Stage next);
};

// As clients see it: docs/server.md.
nlohmann::ordered_json to_json(const Judgement& judgement);

// Of the job that computes the answer again: a token that is not the one that was told ends it.
// `recorded` is called at its end.
using Recorded = std::function<void(const std::optional<ApiError>& problem)>;
std::shared_ptr<JobListener> repeats_answer(std::shared_ptr<Judgement> judgement,
                                            Recorded recorded);

}  // namespace lockstep::server
