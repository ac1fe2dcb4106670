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

// A choice that a side's own logits and its declared sampling cannot have given.
Defect wrong_choice(const Choice& choice, Side side) {
  Defect out{kChoice, -1, choice.position, side, {}};
  out.choice = choice;
  out.own.position = choice.position;
  out.own.error = choice.largest_logit - choice.logit;
  out.own.worst_index = choice.token;
  out.own.recorded = choice.logit;
  out.own.replayed = choice.largest_logit;
  return out;
}

void find_first_defect(const Traces& traces, Comparison& out) {
  std::optional<When> first;
  // Of two sides that are wrong at the same point, both.
  const auto consider = [&](const When& at, Defect defect) {
    if (first && std::pair(at.group, at.checkpoint) == std::pair(first->group, first->checkpoint)) {
      out.first_defect->side = Side::kBoth;
      return;
    }
    if (first && *first < at) return;
    first = at;
    out.first_defect = std::move(defect);
  };
  for (size_t i = 0; i < out.checkpoints.size(); ++i) {
    const CheckpointResult& c = out.checkpoints[i];
    const bool wrong = c.verdict == Verdict::kDefect || c.verdict == Verdict::kGarbage ||
                       c.reference.first_defect || c.suspect.first_defect;  // also of one alone
    out.defects += wrong ? 1 : 0;
    for (const Side side : {Side::kReference, Side::kSuspect}) {
      const auto& judged = side == Side::kReference ? c.reference : c.suspect;
      if (judged.first_defect)
        consider(when(traces, i, judged.first_defect->position),
                 {c.name, c.layer, judged.first_defect->position, side, *judged.first_defect});
    }
  }
  for (const Side side : {Side::kReference, Side::kSuspect}) {
    const auto& choices = side == Side::kReference ? out.reference.choices : out.suspect.choices;
    if (choices.impossible)
      consider(when(traces, out.checkpoints.size(), choices.impossible->position),
               wrong_choice(*choices.impossible, side));
  }
}

// Later checkpoints whose own op is right, and that differ by what they inherit.
int64_t count_followers(const Comparison& c) {
  const auto at =
      std::ranges::find(c.checkpoints, c.first_defect->checkpoint, &CheckpointResult::name);
  if (at == c.checkpoints.end()) return 0;
  return std::count_if(at + 1, c.checkpoints.end(), [](const CheckpointResult& result) {
    return result.verdict == Verdict::kDrift || result.verdict == Verdict::kClose ||
           result.verdict == Verdict::kDiffers;
  });
}

bool beyond_declared_precision(const CheckpointResult& c) {
  return c.known && c.positions > 0 && c.verdict > Verdict::kClose && c.first_beyond;
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
    if (!beyond || std::ranges::binary_search(scope.judged, beyond->position)) continue;
    const When at = when(traces, i, beyond->position);
    first = first ? std::min(*first, at) : at;
  }
  if (first)
    out.notes.push_back(
        fmt::format("at positions that were not judged the sides differ by more than the declared "
                    "precision may explain, first at {}, position {}: --positions {} judges it",
                    out.checkpoints[first->checkpoint].name, first->position, first->position));
}

std::optional<Fork> find_fork(const Traces& traces, const Scope& scope, const Comparison& c) {
  const TokenAgreement& tokens = c.tokens;
  if (!tokens.first_difference || !tokens.same_prompt) return std::nullopt;
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
  fork.reference = choice_at(traces.reference, fork.position, scope.whole_logits);
  fork.suspect = choice_at(traces.suspect, fork.position, scope.whole_logits);
  const DeclaredSampling& p = c.reference.choices.sampling;
  const DeclaredSampling& q = c.suspect.choices.sampling;
  fork.sampled = p.random() || q.random() || (p.known && q.known && p != q);
  return fork;
}

// The share of rows that was judged on both sides.
double judged_share(const Comparison& c) {
  int64_t judged = 0;
  int64_t possible = 0;
  for (const CheckpointResult& result : c.checkpoints) {
    judged += std::min(result.reference.judged_shared, result.suspect.judged_shared);
    possible += result.positions;
  }
  return possible > 0 ? static_cast<double>(judged) / static_cast<double>(possible) : 0;
}

std::optional<Verdict> worst_of(const Comparison& c) {
  std::optional<Verdict> worst;
  for (const CheckpointResult& result : c.checkpoints)
    if (result.known && result.verdict != Verdict::kMissing)
      worst = worst ? std::max(*worst, result.verdict) : result.verdict;
  return worst;
}

void note_choices(const char* side, const SideChoices& choices, Comparison& out) {
  if (choices.sampling.known || choices.not_largest == 0) return;
  out.notes.push_back(fmt::format(
      "the {} chose a token that has not its own largest logit {} of {} times, and does "
      "not say how it sampled",
      side, choices.not_largest, choices.checked));
}

// A side that is right only by an arithmetic that it does not declare is not proved right.
std::string doubt_of(const Comparison& c) {
  for (const auto& [name, side] :
       {std::pair("reference", &c.reference), std::pair("suspect", &c.suspect)})
    if (!side->precision.empty())
      return fmt::format(
          "the {} does not say its precision: f32 does not explain its numbers, this does: {}",
          name, side->precision);
  return "";
}

// Why nothing was replayed; empty where something was.
std::string why_unproved(const Scope& scope, const CompareOptions& options, const Comparison& c) {
  if (scope.program() == nullptr) return options.no_model;
  const bool any = std::ranges::any_of(c.checkpoints, [](const CheckpointResult& result) {
    return result.reference.judged + result.suspect.judged > 0;
  });
  return any ? "" : "no recorded value could be replayed from the others";
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
  const auto garbage = [](const SideJudgement& side) {
    return side.first_defect && side.first_defect->non_finite;
  };
  if (garbage(result.reference) || garbage(result.suspect)) return Verdict::kGarbage;
  if (result.reference.first_defect || result.suspect.first_defect) return Verdict::kDefect;
  if (result.positions == 0) return Verdict::kMissing;
  if (result.metrics.exact()) return Verdict::kExact;
  if (result.reference.judged_shared == 0 || result.suspect.judged_shared == 0) {
    if (result.metrics.non_finite_differs > 0 && !masks_differ(result)) return Verdict::kGarbage;
    return result.first_beyond ? Verdict::kDiffers : Verdict::kClose;
  }
  const double elements = static_cast<double>(std::max<int64_t>(1, result.metrics.elements));
  const double apart = std::sqrt(result.metrics.squares_difference / elements);
  const double rounding =
      kRowLimit * std::hypot(result.reference.worst->expected, result.suspect.worst->expected);
  return apart <= rounding ? Verdict::kRounding : Verdict::kDrift;
}

void conclude(const Traces& traces, const Scope& scope, const CompareOptions& options,
              Comparison& out) {
  out.unproved = why_unproved(scope, options, out);
  out.judged = judged_share(out);
  note_choices("reference", out.reference.choices, out);
  note_choices("suspect", out.suspect.choices, out);
  find_first_defect(traces, out);
  std::optional<Verdict> worst = worst_of(out);
  if (out.first_defect)
    worst = out.first_defect->own.non_finite ? Verdict::kGarbage : Verdict::kDefect;
  if (!worst) {
    out.verdict = out.prompts ? "different prompts" : "nothing to compare";
    return;
  }
  out.verdict = name(*worst == Verdict::kClose ? Verdict::kDrift : *worst);
  if (!out.first_defect && *worst > Verdict::kClose) find_first_difference(traces, out);
  if (out.first_defect) out.first_defect->followers = count_followers(out);
  // A NaN is the worse news, though differences that were not judged surround it.
  if (*worst == Verdict::kDiffers && out.first_defect && out.first_defect->own.non_finite &&
      out.first_defect->side != Side::kUndetermined)
    out.verdict = name(Verdict::kGarbage);
  if (out.prompts) {
    out.verdict = "different prompts";
    return;
  }
  out.fork = find_fork(traces, scope, out);
  // What other settings or weights make is no rounding, though every op is right.
  const bool other_settings = !out.other_settings.empty() && *worst > Verdict::kExact;
  const bool other_weights =
      out.explanation && out.explanation->weights_differ && *worst > Verdict::kExact;
  if (out.fork && (other_settings || other_weights)) out.fork->tie = false;
  // Whoever takes the largest logit parts only where the difference is larger than the margin, so
  // the question is whether rounding explains that difference.
  if (out.fork && *worst > Verdict::kClose) out.fork->tie = false;
  const bool forked = out.fork && !out.fork->tie && !out.fork->sampled;
  if (*worst > Verdict::kClose) return;
  out.doubt = doubt_of(out);
  if (out.coverage < options.min_coverage) out.min_coverage = options.min_coverage;
  if (other_settings)
    out.verdict = "different settings";
  else if (other_weights)
    out.verdict = "different weights";
  else if (forked)
    out.verdict = "fork";
  else if (!out.doubt.empty() || !out.evidence.enough() || out.min_coverage)
    out.verdict = "inconclusive";
  else
    out.parity = true;
  if (out.parity) note_unjudged(traces, scope, out);
}

}  // namespace lockstep::parity
