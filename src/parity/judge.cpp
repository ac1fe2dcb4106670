#include "parity/judge.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>

#include "base/progress.h"
#include "base/text.h"
#include "parity/replay.h"

namespace lockstep::parity {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A sample must not pass over the row that stands out.
std::vector<int64_t> positions_to_judge(const Scope& scope, const SideScope& side,
                                        const CheckpointResult& result) {
  std::vector<int64_t> out = side.replayed;
  const auto place = std::ranges::lower_bound(out, result.worst_position);
  if (scope.sampled && result.positions > 0 &&
      result.worst_position < static_cast<int64_t>(side.tokens.size()) &&
      result.worst_position < side.forwards.front().program.context_length &&
      (place == out.end() || *place != result.worst_position))
    out.insert(place, result.worst_position);
  return out;
}

SideJudgement judge(Replay& replay, op::ValueId id, std::span<const int64_t> positions,
                    std::span<const int64_t> compared) {
  SideJudgement out;
  const auto errors = replay.judge(id, positions);
  if (!errors) return out;
  out.judged = static_cast<int64_t>(errors->size());
  for (const OwnError& own : *errors) {
    if (std::ranges::binary_search(compared, own.position)) ++out.judged_shared;
    if (!out.worst || own.non_finite > out.worst->non_finite || own.ratio() > out.worst->ratio())
      out.worst = own;
    if (!own.defect()) continue;
    out.defects.push_back(own.position);
    if (!out.first_defect) out.first_defect = own;
  }
  return out;
}

struct Judged {
  const SideScope* side;
  SideJudgement CheckpointResult::*judgement;  // of this side
  std::unique_ptr<Replay> replay;
};

// Replays the checkpoints that the program has, in order of execution.
void judge_checkpoints(const Scope& scope, std::span<const Judged> sides, const model::Model& model,
                       Comparison& out) {
  Progress progress("replaying", static_cast<int64_t>(out.checkpoints.size()), "checkpoints");
  for (CheckpointResult& result : out.checkpoints) {
    const auto started = Clock::now();
    const auto id = scope.ids.find(result.name);
    for (const Judged& judged : sides)
      if (id != scope.ids.end() && judged.side->trace->has(result.name))
        result.*judged.judgement =
            judge(*judged.replay, id->second, positions_to_judge(scope, *judged.side, result),
                  scope.compared);
    result.seconds += seconds_since(started);
    progress.advance(1);
    // Traces and models may be larger than memory; every checkpoint has pages of its own.
    for (const Judged& judged : sides) judged.side->trace->release_pages();
    model.file().release_pages();
  }
}

size_t wrong_rows(const Comparison& c, SideJudgement CheckpointResult::*judgement) {
  size_t out = 0;
  for (const CheckpointResult& result : c.checkpoints) out += (result.*judgement).defects.size();
  return out;
}

// Where a side does not say what its forward pass depended on, and the likeliest does not fit, the
// others are tried. The one that fits best is what the side is judged by, and comes first.
void try_other_forwards(const Scope& scope, const model::Model& model,
                        const CompareOptions& options, int threads, SideScope& side,
                        SideJudgement CheckpointResult::*judgement, Comparison& out) {
  size_t best = 0;
  size_t fewest = wrong_rows(out, judgement);
  for (size_t i = 1; i < side.forwards.size() && fewest > 0; ++i) {
    Comparison other = out;
    const Judged judged[] = {{&side, judgement,
                              std::make_unique<Replay>(side.forwards[i], *side.trace, side.tokens,
                                                       options.checkpoints, threads)}};
    judge_checkpoints(scope, judged, model, other);
    if (wrong_rows(other, judgement) >= fewest) continue;
    fewest = wrong_rows(other, judgement);
    best = i;
    out.checkpoints = std::move(other.checkpoints);
  }
  std::swap(side.forwards.front(), side.forwards[best]);
}

}  // namespace

void judge_all(Scope& scope, const model::Model& model, const CompareOptions& options, int threads,
               Comparison& out) {
  std::vector<Judged> sides;
  const auto add = [&](const SideScope& side, SideJudgement CheckpointResult::*judgement) {
    if (side.judged())
      sides.push_back({&side, judgement,
                       std::make_unique<Replay>(side.forwards.front(), *side.trace, side.tokens,
                                                options.checkpoints, threads)});
  };
  add(scope.reference, &CheckpointResult::reference);
  add(scope.suspect, &CheckpointResult::suspect);
  judge_checkpoints(scope, sides, model, out);
  const auto settle = [&](SideScope& side, SideJudgement CheckpointResult::*judgement,
                          SideScopeSummary& summary) {
    if (side.forwards.size() < 2) return;
    try_other_forwards(scope, model, options, threads, side, judgement, out);
    summary.assumed = side.forwards.front().settings;
    out.notes.push_back(fmt::format(
        "the {} does not say its context length; {}: {}", side.name,
        wrong_rows(out, judgement) == 0 ? "what fits" : "what fits best", summary.assumed));
  };
  settle(scope.reference, &CheckpointResult::reference, out.reference);
  settle(scope.suspect, &CheckpointResult::suspect, out.suspect);
  if (!scope.reference.judged() || !scope.suspect.judged()) return;
  const Forward& a = scope.reference.forwards.front();
  const Forward& b = scope.suspect.forwards.front();
  if (ropes_differ(a, b))
    out.other_settings =
        fmt::format("the reference with {}, the suspect with {}", a.settings, b.settings);
}

// A side without a fingerprint that names a file of another name may have run a copy of the one
// that was given. Its numbers tell: those of another model are wrong from the first one on.
Result<void> check_renamed(const SideScope& side, const model::Model& model,
                           SideJudgement CheckpointResult::*judgement, const Comparison& c) {
  if (!side.other_name) return {};
  for (const CheckpointResult& result : c.checkpoints) {
    const SideJudgement& first = result.*judgement;
    if (first.judged == 0) continue;
    if (2 * std::ssize(first.defects) <= first.judged) return {};
    return error(
        "{} is not the model of the trace {}: it ran {}, and its numbers do not fit this "
        "file from {} on. Give the file that it ran (-m); where it is this one under "
        "another name, write its fingerprint into the trace ('lockstep inspect "
        "--fingerprint')",
        model.file().path(), side.trace->folder(), printable(side.trace->manifest().model.file, 80),
        result.name);
  }
  return {};
}

}  // namespace lockstep::parity
