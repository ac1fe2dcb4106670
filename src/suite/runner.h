// One job after another: the engines run, the judge judges.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/temporary_folder.h"
#include "parity/compare.h"
#include "suite/engines.h"
#include "suite/reference_cache.h"
#include "suite/results.h"
#include "trace/trace.h"

namespace lockstep::suite {

struct RunOptions {
  std::string program = "/proc/self/exe";  // this one, for captures
  std::string out;                         // where failed cases leave traces and reports
  std::string goldens;                     // reference traces that are there
  std::string record_goldens;              // reference traces are left here
  std::string cache;                       // of reference traces; empty: none
  int64_t cache_bytes = 0;                 // that it may take
  parity::CompareOptions compare;
  int depth = 3;               // causes that are looked for; 0: none
  double doctor_seconds = 10;  // for that
  const std::atomic<bool>* cancel = nullptr;
};

class Runner {
 public:
  static Result<std::unique_ptr<Runner>> create(const Suite& suite, RunOptions options);

  // Whatever goes wrong is a result too. Jobs of one group share their reference trace where they
  // come one after another.
  CaseResult run(const Job& job);
  // The result of a job that is not run: it could not be judged, for this reason.
  CaseResult give_up(const Job& job, const std::string& reason) const;

 private:
  struct Reference {
    int64_t group = -1;
    std::optional<Task> task;
    std::optional<trace::Trace> trace;
    std::string failure;  // where there is none
    std::string output;
  };

  Runner(const Suite& suite, RunOptions options, TemporaryFolder folder);
  Result<Task> task_of(const Case& one, const Prompt& prompt);
  Result<trace::Trace> reference_trace(const Case& one, size_t prompt, const Task& task,
                                       Failure& failure);
  Result<trace::Trace> golden(const std::string& place, const std::string& key);
  static std::string key_of_reference(const Case& one, const Engine& engine, const Task& task);
  void make_reference(const Job& job);
  Result<void> run_job(const Job& job, CaseResult& result, Failure& failure);
  Result<void> judge(const trace::Trace& suspect, const std::string& folder, CaseResult& result);
  Result<void> leave(const std::string& output, CaseResult& result);

  const Suite& suite_;
  RunOptions options_;
  TemporaryFolder folder_;
  Engines engines_;
  std::optional<ReferenceCache> cache_;
  Reference reference_;
};

}  // namespace lockstep::suite
