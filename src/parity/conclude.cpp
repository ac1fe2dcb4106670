#include "parity/conclude.h"

#include <algorithm>
#include <cmath>

namespace lockstep::parity {
namespace {

// Prompt positions run together, op by op; then every generated one by itself.
struct When {
  int64_t group;
  size_t checkpoint;
  int64_t position;
  auto operator<=>(const When&) const = default;
};

When when(const Traces& traces, size_t checkpoint, int64_t position) {
  const int64_t prompt = traces.reference.manifest().prompt_tokens;
  return {position < prompt ? 0 : position - prompt + 1, checkpoint, position};
}

// Scores are minus infinity where a mask hides them, so an infinity that one side has is a
// question of masks, and without a replay nobody's fault.
bool masks_differ(const CheckpointResult& result) {
  return result.name.ends_with("attn_scores") &&
         result.metrics.reference.nan + result.metrics.suspect.nan == 0;
}

void find_first_defect(const Traces& traces, Comparison& out) {
  std::optional<When> first;
  for (size_t i = 0; i < out.checkpoints.size(); ++i) {
    const CheckpointResult& c = out.checkpoints[i];
    const bool wrong = c.verdict == Verdict::kDefect || c.verdict == Verdict::kGarbage ||
                       c.reference.first_defect || c.suspect.first_defect;  // also of one alone
    out.defects += wrong ? 1 : 0;
    for (const Side side : {Side::kReference, Side::kSuspect}) {
      const auto& judged = side == Side::kReference ? c.reference : c.suspect;
      if (!judged.first_defect) continue;
      const When at = when(traces, i, judged.first_defect->position);
      if (first &&
          std::pair(at.group, at.checkpoint) == std::pair(first->group, first->checkpoint)) {
        out.first_defect->side = Side::kBoth;
        continue;
      }
      if (first && *first < at) continue;
      first = at;
      out.first_defect =
          Defect{c.name, c.layer, judged.first_defect->position, side, *judged.first_defect};
    }
  }
}

bool beyond_declared_precision(const CheckpointResult& c) {
  return c.positions > 0 && c.verdict > Verdict::kDrift && c.first_beyond;
}

Defect difference_at(const Traces& traces, const CheckpointResult& c) {
  const auto& [position, m] = *c.first_beyond;
  Defect out{c.name, c.layer, position, Side::kUndetermined, {}};
  const double elements = static_cast<double>(std::max<int64_t>(1, m.elements));
  out.own.position = position;
  out.own.error = std::sqrt(m.squares_difference / elements);
  out.own.expected =
      allowed_difference(traces, c.layer) * std::sqrt(m.squares_reference / elements) / kRowLimit;
  out.own.non_finite = m.non_finite_differs > 0;
  if (!out.own.non_finite) return out;
  // The side with a NaN or infinity where the other has numbers.
  const bool a = m.reference.nan + m.reference.infinite > 0;
  const bool b = m.suspect.nan + m.suspect.infinite > 0;
  if (a != b && !masks_differ(c)) out.side = a ? Side::kReference : Side::kSuspect;
  return out;
}

// Where nothing was proved: the first difference that the declared precision does not explain.
void find_first_difference(const Traces& traces, Comparison& out) {
  std::optional<When> first;
  for (size_t i = 0; i < out.checkpoints.size(); ++i) {
    const CheckpointResult& c = out.checkpoints[i];
    if (!beyond_declared_precision(c)) continue;
    const When at = when(traces, i, c.first_beyond->position);
    if (first && *first < at) continue;
    first = at;
    out.first_defect = difference_at(traces, c);
  }
}

// What was not judged may still look wrong.
void note_unjudged(const Traces& traces, const Scope& scope, Comparison& out) {
  if (out.positions_judged == 0 || out.positions_judged == out.positions_compared) return;
  std::optional<When> first;
  for (size_t i = 0; i < out.checkpoints.size(); ++i) {
    const auto& beyond = out.checkpoints[i].first_beyond;
    if (!beyond || std::ranges::binary_search(scope.replayed, beyond->position)) continue;
    const When at = when(traces, i, beyond->position);
    first = first ? std::min(*first, at) : at;
  }
  if (first)
    out.notes.push_back(
        fmt::format("at positions that were not judged the sides differ by more than the declared "
                    "precision may explain, first at {}, position {}: --positions {} judges it",
                    out.checkpoints[first->checkpoint].name, first->position, first->position));
}

std::optional<Fork> find_fork(const Traces& traces, const TokenAgreement& tokens) {
  if (!tokens.first_difference) return std::nullopt;
  const auto index = static_cast<size_t>(*tokens.first_difference);
  const auto& a = traces.reference.manifest().tokens;
  const auto& b = traces.suspect.manifest().tokens;
  if (index >= a.size() || index >= b.size() || index == 0) return std::nullopt;
  Fork fork;
  fork.position = static_cast<int64_t>(index) - 1;
  fork.reference_token = a[index];
  fork.suspect_token = b[index];
  const auto x = traces.reference.row("logits", fork.position);
  const auto y = traces.suspect.row("logits", fork.position);
  if (x && y && std::max(a[index], b[index]) < std::min(x->width, y->width)) {
    fork.margin = x->at(0, a[index]) - x->at(0, b[index]);
    const double other = y->at(0, a[index]) - y->at(0, b[index]);
    fork.difference = std::fabs(fork.margin - other);
    fork.tie = std::fabs(fork.margin) <= fork.difference;
  }
  return fork;
}

// The share of rows that was judged on both sides.
double judged_share(const Comparison& c) {
  int64_t judged = 0;
  int64_t possible = 0;
  for (const CheckpointResult& result : c.checkpoints) {
    judged += std::min(result.reference.judged, result.suspect.judged);
    possible += result.positions;
  }
  return possible > 0 ? static_cast<double>(judged) / static_cast<double>(possible) : 0;
}

std::optional<Verdict> worst_of(const Comparison& c) {
  std::optional<Verdict> worst;
  for (const CheckpointResult& result : c.checkpoints)
    if (result.verdict != Verdict::kMissing)
      worst = worst ? std::max(*worst, result.verdict) : result.verdict;
  return worst;
}

}  // namespace

double allowed_difference(const Traces& traces, int64_t layer) {
  double coarsest = 0;
  for (const auto* trace : {&traces.reference, &traces.suspect}) {
    const auto& info = trace->manifest();
    const DType stored = info.checkpoints.empty() ? DType::kF32 : info.checkpoints[0].dtype;
    const Arithmetic a = arithmetic_of(info.engine.precision, stored);
    coarsest = std::max({coarsest, a.activations, a.kv, a.stored, a.of_levels()});
  }
  return 32 * coarsest * static_cast<double>(std::max<int64_t>(layer, 0) + 2);
}

Verdict verdict_of(const CheckpointResult& result) {
  if (result.positions == 0) return Verdict::kMissing;
  const auto garbage = [](const SideJudgement& side) {
    return side.first_defect && side.first_defect->non_finite;
  };
  if (garbage(result.reference) || garbage(result.suspect)) return Verdict::kGarbage;
  if (result.reference.first_defect || result.suspect.first_defect) return Verdict::kDefect;
  if (result.metrics.exact()) return Verdict::kExact;
  if (result.reference.judged == 0 || result.suspect.judged == 0)
    return result.metrics.non_finite_differs > 0 && !masks_differ(result) ? Verdict::kGarbage
                                                                          : Verdict::kDiffers;
  const double elements = static_cast<double>(std::max<int64_t>(1, result.metrics.elements));
  const double apart = std::sqrt(result.metrics.squares_difference / elements);
  const double rounding =
      kRowLimit * std::hypot(result.reference.worst->expected, result.suspect.worst->expected);
  return apart <= rounding ? Verdict::kRounding : Verdict::kDrift;
}

void conclude(const Traces& traces, const Scope& scope, Comparison& out) {
  out.fork = find_fork(traces, out.tokens);
  find_first_defect(traces, out);
  out.judged = judged_share(out);
  std::optional<Verdict> worst = worst_of(out);
  if (!worst) {
    out.verdict = "nothing to compare";
    return;
  }
  if (out.first_defect)
    worst = out.first_defect->own.non_finite ? Verdict::kGarbage : Verdict::kDefect;
  if (*worst == Verdict::kDiffers &&
      std::ranges::none_of(out.checkpoints, beyond_declared_precision))
    worst = Verdict::kDrift;
  out.verdict = name(*worst);
  if (!out.first_defect && *worst > Verdict::kDrift) find_first_difference(traces, out);
  // A NaN is the worse news, though differences that were not judged surround it.
  if (*worst == Verdict::kDiffers && out.first_defect && out.first_defect->own.non_finite &&
      out.first_defect->side != Side::kUndetermined)
    out.verdict = name(Verdict::kGarbage);
  // Whoever takes the largest logit parts only where the difference is larger than the margin, so
  // the question is whether rounding explains that difference.
  if (out.fork && *worst > Verdict::kDrift) out.fork->tie = false;
  const bool forked = out.fork && !out.fork->tie;
  if (forked && *worst <= Verdict::kDrift) out.verdict = "fork";
  out.parity = *worst <= Verdict::kDrift && !forked;
  if (out.parity) note_unjudged(traces, scope, out);
}

}  // namespace lockstep::parity
