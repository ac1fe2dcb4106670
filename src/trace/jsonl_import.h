// A JSONL log becomes a trace.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "trace/jsonl.h"

namespace lockstep::trace {

struct ImportOutcome {
  int64_t rows = 0;
  int64_t positions = 0;
  int64_t checkpoints = 0;
  std::vector<JsonlProblem> problems;  // what was left out, and what was taken with a doubt
};

// `folder` must not hold anything. A log without one line that can be read is an error.
Result<ImportOutcome> import_jsonl(const std::string& log, const std::string& folder);

}  // namespace lockstep::trace
