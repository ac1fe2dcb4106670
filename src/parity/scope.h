// What of two traces is compared and what is judged: decided before any value is read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "op/program.h"
#include "parity/compare.h"
#include "parity/forward.h"
#include "trace/trace.h"

namespace lockstep::parity {

struct Traces {
  const trace::Trace& reference;
  const trace::Trace& suspect;
};

// One side, and what it is judged by.
struct SideScope {
  const char* name = "";
  const trace::Trace* trace = nullptr;
  const model::Model* model = nullptr;  // that it is judged by; null: the side is not judged
  std::vector<Forward> forwards = {};   // of that model; empty: the side is not judged
  trace::Precision precision = {};      // as it says, or what fits where it does not
  // Of its positions: its own, or the other's where it does not say.
  std::vector<int32_t> tokens = {};
  std::vector<int64_t> replayed = {};  // positions
  // It names a file of another name than the one given, and has no fingerprint: its numbers decide.
  bool other_name = false;

  bool judged() const { return !forwards.empty(); }
};

// Traces and models may be larger than memory.
inline void release_pages(const SideScope& side) {
  side.trace->release_pages();
  if (side.model != nullptr) side.model->file().release_pages();
}

// Neighbours in a list of checkpoints.
struct Stretch {
  size_t first = 0;
  size_t end = std::numeric_limits<size_t>::max();  // or the end of the list

  std::span<CheckpointResult> of(std::vector<CheckpointResult>& all) const {
    const size_t last = std::min(end, all.size());
    return std::span(all).subspan(std::min(first, last), last - std::min(first, last));
  }
};

struct Scope {
  SideScope reference;
  SideScope suspect;
  std::map<std::string, op::ValueId> ids;  // of the program's values, where a side is judged
  std::vector<int64_t> anywhere;  // positions that either side has and that can be compared
  std::vector<int64_t> compared;  // those of both
  std::vector<int64_t> judged;    // of those, replayed on each side that is judged
  bool sampled = false;           // not all are replayed, and the user did not choose
  int64_t whole_logits = 0;       // fewer numbers are a row of logits that was cut off
  bool keeps_rows = false;        // CompareOptions::rows
  Stretch stretch;                // of the checkpoints that are worked on

  const op::Program* program() const {
    for (const SideScope* side : {&reference, &suspect})
      if (side->judged()) return &side->forwards.front().program;
    return nullptr;
  }
};

// Is it the same model on both sides, and the one that was given? Which checkpoints and positions
// are there? Needs `out.tokens`; writes `out.checkpoints`, without results, and `out.notes`.
Result<Scope> decide_scope(const Traces& traces, const model::Model* model,
                           const CompareOptions& options, Comparison& out);

int64_t layer_of(const std::string& checkpoint);  // -1: of none

// The parts of it, in files of their own. Whether each side ran the model that was given for it:
Result<void> choose_models(const Traces& traces, const model::Model& model,
                           const model::Model* of_suspect, Scope& scope, Comparison& out);
// Which checkpoints there are, in order of execution, and names that are none.
void list_checkpoints(const Traces& traces, const std::string& selected, Scope& scope,
                      Comparison& out);
// Which positions are replayed on each side.
Result<void> choose_replayed(const CompareOptions& options, Scope& scope, Comparison& out);

}  // namespace lockstep::parity
