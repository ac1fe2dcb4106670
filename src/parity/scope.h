// What of two traces is compared and what is judged: decided before any value is read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"
#include "op/program.h"
#include "parity/compare.h"
#include "trace/trace.h"

namespace lockstep::parity {

struct Traces {
  const trace::Trace& reference;
  const trace::Trace& suspect;
};

struct Scope {
  std::optional<op::Program> program;      // of the model that was given
  std::map<std::string, op::ValueId> ids;  // of the program's values
  bool reference_judged = true;            // ran the model that was given
  bool suspect_judged = true;
  std::vector<int64_t> anywhere;  // positions that either side has
  std::vector<int64_t> compared;  // those of both
  std::vector<int64_t> replayed;  // of those
  bool sampled = false;           // not all are replayed, and the user did not choose
};

// Is it the same model on both sides, and the one that was given? Which checkpoints and positions
// are there? Needs `out.tokens`; writes `out.checkpoints`, without results, and `out.notes`.
Result<Scope> decide_scope(const Traces& traces, const model::Model* model,
                           const CompareOptions& options, Comparison& out);

}  // namespace lockstep::parity
