// One answer held against double precision. The work is done by this program itself, started anew:
// what it takes in memory and time has limits, and it can be ended at any moment.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/sampler.h"

namespace lockstep::server {

struct JudgeOptions {
  int64_t disk_bytes = 4'000'000'000;      // for recordings and reports; 0: nothing is judged
  std::string program = "/proc/self/exe";  // this one
  int threads = 0;                         // 0: all cores
  double budget_seconds = 600;             // beyond that, about, a sample of positions is judged
};

// What lies in a judgement's folder.
inline constexpr const char* kAnswerTrace = "answer.trace";
inline constexpr const char* kReferenceTrace = "reference.trace";
inline constexpr const char* kReportPage = "report.html";

struct JudgeTask {
  std::string folder;                   // has the answer's trace
  std::string model;                    // file
  std::string fingerprint;              // of the model that is served
  int64_t context = 0;                  // positions that the answer had room for
  std::vector<engine::TokenId> tokens;  // that were evaluated: all but the last
};

struct JudgeVerdict {
  bool parity = false;
  std::string verdict;
  std::string headline;               // a sentence
  std::string cause;                  // the first one that was found; empty: none
  std::optional<double> worst_ratio;  // own error over bound
  std::optional<double> mean_kl;
};

// Reads what compare --json prints.
Result<JudgeVerdict> read_verdict(const std::string& file);

// `judging` is called between the two parts: the same tokens in double precision, and the
// comparison. An error says what went wrong, for people; one that was cancelled too.
Result<JudgeVerdict> judge(const JudgeTask& task, const JudgeOptions& options,
                           const std::atomic<bool>& cancel, const std::function<void()>& judging);

}  // namespace lockstep::server
