#include "parity/judge.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <set>
#include <span>

#include "base/parallel.h"
#include "base/progress.h"
#include "base/text.h"
#include "parity/effort.h"
#include "parity/replay.h"
#include "parity/same_rows.h"

namespace lockstep::parity {
namespace {

using Clock = std::chrono::steady_clock;

// Pages that were read and not yet given back.
constexpr double kHeldBytes = 256 << 20;

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
                    const Scope& scope) {
  SideJudgement out;
  const auto errors = replay.judge(id, positions);
  if (!errors) return out;
  out.judged = static_cast<int64_t>(errors->size());
  for (const OwnError& own : *errors) {
    if (std::ranges::binary_search(scope.compared, own.position)) ++out.judged_shared;
    if (scope.keeps_rows) out.rows.push_back(row_error(own));
    if (!own.settled) continue;
    if (!out.worst || own.non_finite > out.worst->non_finite || own.ratio() > out.worst->ratio())
      out.worst = own;
    if (!own.defect()) continue;
    out.defects.push_back(own.position);
    if (!out.first_defect) out.first_defect = own;
  }
  return out;
}

using Judgement = SideJudgement CheckpointResult::*;  // of one side

struct Judged {
  const SideScope* side;
  Judgement judgement;
};

bool any_wrong(const Comparison& c, Judgement judgement) {
  return std::ranges::any_of(c.checkpoints, [&](const CheckpointResult& result) {
    return !(result.*judgement).defects.empty();
  });
}

int64_t count_wrong(std::span<const OwnError> rows) {
  return std::ranges::count_if(rows, &OwnError::defect);
}

// An engine with a coarse arithmetic has its errors wherever it rounds. So of the rows to which it
// grants much more than the fine one, most must be beyond the fine one; a single mistake is not.
bool is_used(std::span<const OwnError> fine, std::span<const OwnError> coarse) {
  constexpr double kMuchMore = 8;
  int64_t granted = 0;
  int64_t used = 0;
  for (size_t i = 0; i < std::min(fine.size(), coarse.size()); ++i) {
    if (coarse[i].expected <= kMuchMore * fine[i].expected) continue;
    ++granted;
    used += fine[i].defect() ? 1 : 0;
  }
  return 2 * used > granted;
}

// Arithmetic that engines have, from fine to coarse, for a side that does not say.
trace::Precision precision_of(const char* compute, const char* activations, const char* kv) {
  trace::Precision out;
  out.compute = compute;
  out.activations = activations;
  out.kv = kv;
  return out;
}

const std::vector<trace::Precision>& likely_precisions() {
  static const std::vector<trace::Precision> all = {
      precision_of("f32", "f32", "f16"),   precision_of("f32", "tf32", "f32"),
      precision_of("f32", "i16", "f16"),   precision_of("f32", "f16", "f16"),
      precision_of("f32", "bf16", "bf16"), precision_of("f32", "by_weight", "f16"),
      precision_of("f16", "f16", "f16"),   precision_of("bf16", "bf16", "bf16")};
  return all;
}

class Judge {
 public:
  Judge(Scope& scope, const CompareOptions& options, int threads, Comparison& out)
      : scope_(scope), options_(options), threads_(threads), out_(out) {}

  void rows() {
    std::vector<Judged> sides;
    if (scope_.reference.judged() && !one())
      sides.push_back({&scope_.reference, &CheckpointResult::reference});
    if (scope_.suspect.judged()) sides.push_back({&scope_.suspect, &CheckpointResult::suspect});
    run(sides, out_);
  }

  void sides() {
    if (!one()) settle(scope_.reference, &CheckpointResult::reference, out_.reference);
    settle(scope_.suspect, &CheckpointResult::suspect, out_.suspect);
    if (!one()) note_derived_experts(scope_.reference, out_.reference.experts);
    note_derived_experts(scope_.suspect, out_.suspect.experts);
    if (!one()) return;
    scope_.reference = scope_.suspect;
    out_.reference = out_.suspect;
    for (CheckpointResult& result : out_.checkpoints) result.reference = result.suspect;
  }

 private:
  // A trace that is compared with itself is judged once.
  bool one() const { return scope_.reference.trace == scope_.suspect.trace; }

  // Replays the checkpoints that the program has, in order of execution.
  void run(std::span<const Judged> sides, Comparison& out) const {
    std::vector<std::unique_ptr<Replay>> replays;
    for (const Judged& judged : sides) {
      const SideScope& side = *judged.side;
      replays.push_back(std::make_unique<Replay>(side.forwards.front(), side.precision, *side.trace,
                                                 side.tokens, options_.checkpoints, threads_,
                                                 options_.products()));
    }
    const auto checkpoints = scope_.stretch.of(out.checkpoints);
    const std::vector<double> efforts = efforts_of(sides, checkpoints);
    const double total = std::accumulate(efforts.begin(), efforts.end(), 1e-9);
    double done = 0;
    std::optional<SameRows> same;
    if (sides.size() == 2) same.emplace(*sides[0].side, *sides[1].side, options_.checkpoints);
    double held_bytes = 0;
    Progress progress("replaying", std::ssize(checkpoints), "checkpoints");
    for (CheckpointResult& result : checkpoints) {
      const auto started = Clock::now();
      const auto id = scope_.ids.find(result.name);
      const auto judge_side = [&](size_t i) {
        if (id == scope_.ids.end() || !sides[i].side->trace->has(result.name)) return;
        result.*sides[i].judgement = judge(
            *replays[i], id->second, positions_to_judge(scope_, *sides[i].side, result), scope_);
      };
      // Side by side: what one of them does on a single core, or on the GPU, costs the other
      // nothing. Where both recorded the same, one judgement is both's.
      const bool shared = same && id != scope_.ids.end() && same->of(id->second);
      parallel_for(
          shared ? 1 : std::ssize(sides), 1,
          [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) judge_side(static_cast<size_t>(i));
          },
          threads_);
      if (shared) result.*sides[1].judgement = result.*sides[0].judgement;
      result.seconds += seconds_since(started);
      done += efforts[static_cast<size_t>(&result - checkpoints.data())];
      progress.advance(1, done / total);
      // Traces and models may be larger than memory. Giving pages back takes long, and the next
      // checkpoint reads some of them again: not after each.
      if (id == scope_.ids.end()) continue;
      for (const Judged& judged : sides)
        held_bytes +=
            bytes_of(judged.side->forwards.front().program, *judged.side->trace, id->second);
      if (held_bytes < kHeldBytes) continue;
      for (const Judged& judged : sides) release_pages(*judged.side);
      held_bytes = 0;
    }
    for (size_t i = 0; i < sides.size(); ++i) {
      const bool reference = sides[i].judgement == &CheckpointResult::reference;
      (reference ? out.reference : out.suspect).experts = replays[i]->derived_choices();
    }
  }

  // What would make certain which experts a side took.
  void note_derived_experts(const SideScope& side, const DerivedChoices& derived) {
    if (derived.rows() == 0) return;
    std::string note =
        fmt::format("the {} did not record which experts its tokens took: {} choices were derived",
                    side.name, derived.rows());
    if (derived.open() > 0)
      note += fmt::format(
          ", of which {} are too close to tell or have an unknown order, so that nothing is said "
          "of what follows from them",
          derived.open());
    out_.notes.push_back(note + "; recording ffn_choice makes them certain");
  }

  // By checkpoint: what its judgement costs on these sides.
  std::vector<double> efforts_of(std::span<const Judged> sides,
                                 std::span<const CheckpointResult> checkpoints) const {
    std::vector<double> out;
    for (const CheckpointResult& result : checkpoints) {
      out.push_back(0);
      const auto id = scope_.ids.find(result.name);
      if (id == scope_.ids.end()) continue;
      for (const Judged& judged : sides)
        if (judged.side->trace->has(result.name))
          out.back() +=
              static_cast<double>(judged.side->replayed.size()) *
              effort_of(judged.side->forwards.front().program, *judged.side->trace, id->second);
    }
    return out;
  }

  // Where a side does not say what its numbers depended on, and the likeliest does not fit, others
  // are tried at a few positions, and what fits best is what the side is judged by.
  void settle(SideScope& side, Judgement judgement, SideScopeSummary& summary) {
    if (!side.judged()) return;
    const bool contexts = side.forwards.size() > 1;
    const bool precisions = !side.trace->manifest().engine.precision.compute;
    if (any_wrong(out_, judgement) && (contexts || precisions)) {
      const std::vector<int64_t> few = few_positions(side, judgement);
      bool found = contexts && try_forwards(side, few);
      if (precisions && try_precisions(side, few)) {
        found = true;
        summary.precision = describe(side.precision);
        out_.notes.push_back(
            fmt::format("f32 does not explain the numbers of the {}; what fits best: {}", side.name,
                        summary.precision));
      }
      const Judged all[] = {{&side, judgement}};
      if (found) run(all, out_);
    }
    if (!contexts) return;
    summary.assumed = side.forwards.front().settings;
    out_.notes.push_back(fmt::format("the {} does not say its context length; {}: {}", side.name,
                                     any_wrong(out_, judgement) ? "what fits best" : "what fits",
                                     summary.assumed));
  }

  // Some that are wrong, and some of all.
  std::vector<int64_t> few_positions(const SideScope& side, Judgement judgement) const {
    const size_t of_each = scope_.sampled ? 1 : 4;  // where positions are dear, as few as can be
    std::set<int64_t> wrong;
    for (const CheckpointResult& result : out_.checkpoints)
      wrong.insert((result.*judgement).defects.begin(), (result.*judgement).defects.end());
    std::set<int64_t> chosen;
    const auto add = [&](const std::vector<int64_t>& from) {
      for (size_t i = 1; i <= of_each && !from.empty(); ++i)
        chosen.insert(from[i * (from.size() - 1) / of_each]);
    };
    add({wrong.begin(), wrong.end()});
    add(side.replayed);
    return {chosen.begin(), chosen.end()};
  }

  // Rows at a few positions, judged by what the side is now taken for.
  std::vector<OwnError> attempt(const SideScope& side,
                                const std::vector<int64_t>& positions) const {
    Replay replay(side.forwards.front(), side.precision, *side.trace, side.tokens,
                  options_.checkpoints, threads_, options_.products());
    std::vector<OwnError> out;
    for (const CheckpointResult& result : out_.checkpoints) {
      const auto id = scope_.ids.find(result.name);
      if (id == scope_.ids.end() || !side.trace->has(result.name)) continue;
      if (const auto rows = replay.judge(id->second, positions, Replay::Settle::kAll))
        out.insert(out.end(), rows->begin(), rows->end());
      release_pages(side);
    }
    return out;
  }

  bool try_forwards(SideScope& side, const std::vector<int64_t>& positions) {
    auto fewest = count_wrong(attempt(side, positions));
    bool found = false;
    for (size_t i = 1; i < side.forwards.size() && fewest > 0; ++i) {
      std::swap(side.forwards.front(), side.forwards[i]);
      const auto wrong = count_wrong(attempt(side, positions));
      if (wrong >= fewest) {
        std::swap(side.forwards.front(), side.forwards[i]);
        continue;
      }
      fewest = wrong;
      found = true;
    }
    return found;
  }

  bool try_precisions(SideScope& side, const std::vector<int64_t>& positions) {
    const trace::Precision before = side.precision;
    const std::vector<OwnError> assumed = attempt(side, positions);
    auto fewest = count_wrong(assumed);
    std::optional<trace::Precision> best;
    for (const trace::Precision& precision : likely_precisions()) {
      if (fewest == 0) break;
      side.precision = precision;
      const std::vector<OwnError> rows = attempt(side, positions);
      const auto wrong = count_wrong(rows);
      // A coarser arithmetic hides part of every mistake: it has to explain most of what is wrong.
      if (2 * wrong >= fewest || !is_used(assumed, rows)) continue;
      fewest = wrong;
      best = precision;
    }
    side.precision = best.value_or(before);
    return best.has_value();
  }

  Scope& scope_;
  const CompareOptions& options_;
  const int threads_;
  Comparison& out_;
};

}  // namespace

void judge_rows(Scope& scope, const CompareOptions& options, int threads, Comparison& out) {
  Judge(scope, options, threads, out).rows();
}

void settle_sides(Scope& scope, const CompareOptions& options, int threads, Comparison& out) {
  Judge(scope, options, threads, out).sides();
  if (!scope.reference.judged() || !scope.suspect.judged()) return;
  const Forward& a = scope.reference.forwards.front();
  const Forward& b = scope.suspect.forwards.front();
  if (ropes_differ({a, *scope.reference.trace}, {b, *scope.suspect.trace}, scope.compared))
    out.other_settings =
        fmt::format("the reference with {}, the suspect with {}", a.settings, b.settings);
}

// A side without a fingerprint may have run another file than the one given, or a copy of it under
// another name. Its numbers tell: those of another model are wrong from the first one on.
Result<void> check_file(const SideScope& side, Judgement judgement, Comparison& out) {
  if (!side.judged() || !side.trace->manifest().model.fingerprint.empty()) return {};
  const auto first = std::ranges::find_if(out.checkpoints, [&](const CheckpointResult& result) {
    return (result.*judgement).judged > 0;
  });
  if (first == out.checkpoints.end()) return {};
  const SideJudgement& judged = (*first).*judgement;
  if (2 * std::ssize(judged.defects) <= judged.judged) return {};
  if (side.other_name)
    return error(
        "{} is not the model of the trace {}: it ran {}, and its numbers do not fit this file from "
        "{} on. Give the file that it ran (-m); where it is this one under another name, write its "
        "fingerprint into the trace ('lockstep inspect --fingerprint')",
        side.model->file().path(), side.trace->folder(),
        printable(side.trace->manifest().model.file, 80), first->name);
  if (std::ssize(judged.defects) == judged.judged)
    out.notes.push_back(fmt::format(
        "the {} is wrong from its first checkpoint on and does not say which file it ran (its "
        "fingerprint): if it was another one than {}, that is the reason",
        side.name, side.model->file().path()));
  return {};
}

}  // namespace lockstep::parity
