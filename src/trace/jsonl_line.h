// One line of a JSONL log. Apart from JSON itself it takes what loggers write where JSON has no
// word: NaN, Infinity, inf and nan, bare or as strings, and null. That, and the column of whatever
// is wrong, is why no JSON library reads it.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "trace/jsonl.h"

namespace lockstep::trace {

struct LineOutcome {
  std::optional<JsonlRecord> record;
  std::vector<JsonlProblem> problems;  // their lines are not known here
  bool at_end = false;                 // what failed, failed because the text ended
};

LineOutcome read_jsonl_line(std::string_view line);

}  // namespace lockstep::trace
