#include "parity/compare.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/parallel.h"
#include "base/progress.h"
#include "parity/conclude.h"
#include "parity/measure.h"
#include "parity/scope.h"

namespace lockstep::parity {
namespace {

void note_offset(int64_t offset, Comparison& out) {
  const bool later = offset > 0;
  out.notes.push_back(fmt::format(
      "the {0}'s tokens are the {1}'s from token {2} on: the {0} counts positions from another "
      "start (from the generation, not from the prompt?). Write absolute positions, with the "
      "prompt's tokens first",
      later ? "suspect" : "reference", later ? "reference" : "suspect", std::abs(offset)));
}

// A sample must not pass over the row that stands out.
std::vector<int64_t> positions_to_judge(const Scope& scope, const CheckpointResult& result) {
  std::vector<int64_t> out = scope.replayed;
  const auto place = std::ranges::lower_bound(out, result.worst_position);
  if (scope.sampled && result.positions > 0 &&
      result.worst_position < scope.program->context_length &&
      (place == out.end() || *place != result.worst_position))
    out.insert(place, result.worst_position);
  return out;
}

SideJudgement judge(Replay& replay, op::ValueId id, std::span<const int64_t> positions) {
  SideJudgement out;
  const auto errors = replay.judge(id, positions);
  if (!errors) return out;
  out.judged = static_cast<int64_t>(errors->size());
  for (const OwnError& own : *errors) {
    if (!out.worst || own.non_finite > out.worst->non_finite || own.ratio() > out.worst->ratio())
      out.worst = own;
    if (own.defect() && !out.first_defect) out.first_defect = own;
  }
  return out;
}

// Replays the checkpoints that the program has, in order of execution.
void judge_all(const Traces& traces, const Scope& scope, const model::Model& model,
               const CompareOptions& options, int threads, Comparison& out) {
  const op::Program& program = *scope.program;
  Replay reference(program, traces.reference, out.tokens.tokens, options.checkpoints, threads);
  Replay suspect(program, traces.suspect, out.tokens.tokens, options.checkpoints, threads);
  Progress progress("replaying", static_cast<int64_t>(out.checkpoints.size()), "checkpoints");
  for (CheckpointResult& result : out.checkpoints) {
    if (const auto id = scope.ids.find(result.name); id != scope.ids.end()) {
      const std::vector<int64_t> positions = positions_to_judge(scope, result);
      if (result.in_reference && scope.reference_judged)
        result.reference = judge(reference, id->second, positions);
      if (result.in_suspect && scope.suspect_judged)
        result.suspect = judge(suspect, id->second, positions);
    }
    progress.advance(1);
    // Traces and models may be larger than memory; every checkpoint has pages of its own.
    traces.reference.release_pages();
    traces.suspect.release_pages();
    model.file().release_pages();
  }
}

}  // namespace

std::string_view name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"exact",   "rounding", "drift",  "defect",
                                         "garbage", "differs",  "missing"};
  return kNames[static_cast<int>(verdict)];
}

std::string_view name(Side side) {
  constexpr std::string_view kNames[] = {"reference", "suspect", "both", "undetermined"};
  return kNames[static_cast<int>(side)];
}

Result<Comparison> compare(const trace::Trace& reference, const trace::Trace& suspect,
                           const model::Model* model, const CompareOptions& options) {
  const Traces traces{reference, suspect};
  const int threads = options.threads > 0 ? options.threads : available_cores();
  Comparison out;
  out.tokens = compare_tokens(reference.manifest(), suspect.manifest());
  if (!out.tokens.same_prompt) {
    out.verdict = "different prompts";
    if (out.tokens.offset) note_offset(*out.tokens.offset, out);
    return out;
  }
  LS_TRY(const Scope scope, decide_scope(traces, model, options, out));
  measure(traces, scope, threads, out);
  if (scope.program) judge_all(traces, scope, *model, options, threads, out);
  for (CheckpointResult& result : out.checkpoints) result.verdict = verdict_of(result);
  conclude(traces, scope, out);
  return out;
}

}  // namespace lockstep::parity
