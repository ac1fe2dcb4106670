// A whole suite, or a part of it, from the first job to the last.
#pragma once

#include <functional>
#include <optional>

#include "suite/runner.h"

namespace lockstep::suite {

struct CheckOptions {
  RunOptions run;
  std::optional<Part> part;
  const Results* resume = nullptr;    // results that are there already
  std::string give_up;                // not empty: nothing runs, for this reason
  const Results* baseline = nullptr;  // what must not get worse
};

// Who watches: what begins, and what came of it. May be empty.
struct Watching {
  std::function<void(int64_t jobs)> on_plan;  // that will run
  std::function<void(const Job&)> on_begin;
  std::function<void(const CaseResult&)> on_end;
  // Now and then: what there is so far, not complete. Whatever ends the program, --resume has it.
  std::function<void(const Results&)> on_partial;
};

// Ends early where the run's `cancel` is set: what is there comes back, not complete.
Result<Results> check(const Suite& suite, const CheckOptions& options, const Watching& watching);

// "2026-11-16T13:20:05Z", and the same for the name of a file.
std::string utc_time();
// Of the sources that are checked: what GitHub or GitLab say, or git here; empty where nobody does.
std::string current_commit();

// A new file of the folder, named by the time: never one that is there.
Result<std::string> add_to_history(const Results& results, const std::string& folder);

}  // namespace lockstep::suite
