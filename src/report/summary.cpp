#include "report/summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace lockstep::report {
namespace {

using parity::CheckpointResult;
using parity::Comparison;
using parity::Side;
using parity::Verdict;

std::string subject_of(Side side) {
  switch (side) {
    case Side::kReference:
      return "the reference is wrong";
    case Side::kSuspect:
      return "the suspect is wrong";
    case Side::kBoth:
      return "both sides are wrong";
    case Side::kUndetermined:
      break;
  }
  return "the sides differ";
}

std::string place(const parity::Defect& defect) {
  return fmt::format("{}, position {}", printable(defect.checkpoint), defect.position);
}

std::string token_text(const std::optional<int32_t>& id, const std::optional<std::string>& text) {
  if (!id) return "has ended";
  return text ? fmt::format("{} '{}'", *id, printable(*text, 40)) : fmt::format("{}", *id);
}

std::string token_sentence(const TokenPair& pair) {
  return fmt::format("Token {}: the reference {}, the suspect {}.", pair.index,
                     token_text(pair.reference, pair.reference_text),
                     token_text(pair.suspect, pair.suspect_text));
}

std::string fork_sentence(const parity::Fork& fork) {
  return fmt::format("The choice at position {}: margin {} in the reference, difference {}: {}.",
                     fork.position, short_number(fork.margin), short_number(fork.difference),
                     fork.tie ? "a tie that rounding decides" : "not a tie that rounding explains");
}

std::string tokens_fact(const Comparison& c, const Subject& subject) {
  if (!c.tokens.known) return "not recorded on both sides";
  std::string out = c.tokens.agree && c.tokens.same_prompt
                        ? fmt::format("all {} agree", c.tokens.shared)
                        : fmt::format("{} agree, then they part.", c.tokens.shared);
  if (subject.difference && c.tokens.same_prompt)
    out += fmt::format(". {}", token_sentence(*subject.difference));
  if (c.fork) out += fmt::format(" {}", fork_sentence(*c.fork));
  return out;
}

bool all_judged(const Comparison& c) {
  return c.positions_judged == c.positions_compared;
}

std::string judged_fact(const Comparison& c, const Subject& subject) {
  if (subject.model.empty()) return "nothing: no model file";
  std::string out = fmt::format("{} of those were replayed", percent(c.judged));
  if (!all_judged(c))
    out += fmt::format(": {} of {} positions{}", c.positions_judged, c.positions_compared,
                       c.positions_chosen ? ", as chosen; nothing is said of the others" : "");
  return out;
}

std::string verdict_counts(const Comparison& c) {
  std::array<int64_t, 7> counts{};
  for (const CheckpointResult& result : c.checkpoints)
    ++counts.at(static_cast<size_t>(result.verdict));
  std::string out = fmt::format("{}: ", c.checkpoints.size());
  const char* separator = "";
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts.at(i) == 0) continue;
    out += fmt::format("{}{} {}", separator, counts.at(i), parity::name(static_cast<Verdict>(i)));
    separator = ", ";
  }
  return out;
}

// Missing is a gap, not a fault.
int severity(Verdict verdict) {
  return verdict == Verdict::kMissing ? -1 : static_cast<int>(verdict);
}

}  // namespace

std::string short_number(double value) {
  if (value == 0) return "0";
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const double size = std::fabs(value);
  if (size >= 1e-2 && size < 1e5) return fmt::format("{:.3g}", value);
  return fmt::format("{:.1e}", value);
}

std::string percent(double share) {
  if (share >= 1) return "100%";
  const double shown = std::floor(share * 1e4) / 1e2;
  return fmt::format("{:g}%", shown);
}

BoundedError bounded(const parity::OwnError& own) {
  using Measure = BoundedError::Measure;
  // A mask that is wrong: one of the two is minus infinity.
  if (own.non_finite || std::isinf(own.worst_ratio))
    return {Measure::kNonFinite, std::numeric_limits<double>::infinity(), 0};
  const double row_bound = parity::kRowLimit * own.expected;
  const double row = row_bound > 0 ? own.error / row_bound : own.error > 0 ? INFINITY : 0;
  const double element = own.worst_ratio / parity::kElementLimit;
  if (element <= row || !std::isfinite(element)) return {Measure::kRow, own.error, row_bound};
  const double error = std::fabs(own.recorded - own.replayed);
  return {Measure::kElement, error, error / element};
}

std::string_view name(BoundedError::Measure measure) {
  constexpr std::string_view kNames[] = {"row", "element", "non_finite"};
  return kNames[static_cast<int>(measure)];
}

std::string headline(const Comparison& c) {
  if (!c.tokens.same_prompt) return "Not compared: the prompts differ";
  if (c.first_defect && !c.parity) {
    const parity::Defect& defect = *c.first_defect;
    return fmt::format("Not in parity: {} {} {}", subject_of(defect.side),
                       defect.side == Side::kUndetermined ? "from" : "at", place(defect));
  }
  if (c.verdict == "fork")
    return fmt::format("Not in parity: the sides choose different tokens at position {}",
                       c.fork ? c.fork->position : 0);
  if (!c.parity) return fmt::format("Not in parity: {}", c.verdict);
  if (c.verdict == "exact")
    return c.coverage < 1 ? "In parity: every number that both sides have is the same"
                          : "In parity: every number is the same";
  if (c.judged == 0) return "In parity, as far as the declared precision tells";
  const std::string where = all_judged(c) ? ""
                                          : fmt::format(" at the {} (of {}) positions judged",
                                                        c.positions_judged, c.positions_compared);
  if (c.verdict == "rounding") return fmt::format("In parity{}: both sides within rounding", where);
  return fmt::format("In parity{}: every op within rounding, differences only inherited", where);
}

std::string evidence(const Comparison& c, const Subject& subject) {
  if (!c.tokens.same_prompt)
    return subject.difference ? token_sentence(*subject.difference) : std::string();
  if (!c.first_defect || c.parity) return {};
  const parity::Defect& defect = *c.first_defect;
  const BoundedError own = bounded(defect.own);
  const bool proved = defect.side != Side::kUndetermined && !subject.model.empty();
  if (own.measure == BoundedError::Measure::kNonFinite)
    return proved ? fmt::format("Recorded {} at element {}, where its inputs give {}.",
                                short_number(defect.own.recorded), defect.own.worst_index,
                                short_number(defect.own.replayed))
                  : "A NaN or infinity that the other side does not have.";
  if (!proved)
    return fmt::format(
        "Difference {}, more than the {} that the declared precision may explain; "
        "a model file (-m) tells which side is wrong.",
        short_number(own.error), short_number(own.bound));
  std::string out =
      fmt::format("Own error {}, bound {}", short_number(own.error), short_number(own.bound));
  if (own.bound > 0) out += fmt::format(" ({} times)", short_number(own.error / own.bound));
  if (defect.own.worst_ratio > 0)
    out += fmt::format("; element {} is {:.9g}, should be {:.9g}", defect.own.worst_index,
                       defect.own.recorded, defect.own.replayed);
  return out + ".";
}

std::vector<Fact> facts(const Comparison& c, const Subject& subject) {
  std::vector<Fact> out;
  const auto party = [](const Party& p) {
    return fmt::format("{} ({})", printable(p.path), printable(p.engine));
  };
  out.push_back({"reference", party(subject.reference)});
  out.push_back({"suspect", party(subject.suspect)});
  if (!subject.model.empty()) out.push_back({"model", printable(subject.model)});
  if (!c.tokens.same_prompt) return out;
  out.push_back({"tokens", tokens_fact(c, subject)});
  if (c.choices.compared > 0)
    out.push_back(
        {"choices", fmt::format("the same largest logit at {} of {} positions; KL "
                                "divergence mean {}, worst {}",
                                c.choices.same, c.choices.compared, short_number(c.choices.mean_kl),
                                short_number(c.choices.worst_kl))});
  out.push_back({"coverage", fmt::format("{} of the rows are on both sides", percent(c.coverage))});
  out.push_back({"judged", judged_fact(c, subject)});
  out.push_back({"checkpoints", verdict_counts(c)});
  return out;
}

std::vector<const CheckpointResult*> stations(const Comparison& c) {
  std::vector<const CheckpointResult*> out;
  for (const CheckpointResult& result : c.checkpoints) {
    const bool station = result.name == "embedding" || result.name == "final_norm" ||
                         result.name == "logits" ||
                         (result.layer >= 0 && result.name.ends_with(".output"));
    if (station && result.positions > 0) out.push_back(&result);
  }
  return out;
}

double worst_ratio(const CheckpointResult& result) {
  double out = 0;
  for (const auto* side : {&result.reference, &result.suspect})
    if (side->worst) out = std::max(out, side->worst->non_finite ? INFINITY : side->worst->ratio());
  return out;
}

std::vector<const CheckpointResult*> worst(const Comparison& c, size_t most) {
  std::vector<const CheckpointResult*> out;
  for (const CheckpointResult& result : c.checkpoints)
    if (result.verdict != Verdict::kExact && result.verdict != Verdict::kMissing)
      out.push_back(&result);
  std::ranges::stable_sort(out, [](const CheckpointResult* a, const CheckpointResult* b) {
    if (a->verdict != b->verdict) return severity(a->verdict) > severity(b->verdict);
    if (worst_ratio(*a) != worst_ratio(*b)) return worst_ratio(*a) > worst_ratio(*b);
    return a->worst_relative_l2 > b->worst_relative_l2;
  });
  if (out.size() > most) out.resize(most);
  return out;
}

Party describe(const trace::Trace& trace) {
  const trace::EngineInfo& engine = trace.manifest().engine;
  Party out{trace.folder(), engine.name};
  if (!engine.version.empty()) out.engine += fmt::format(" {}", engine.version);
  if (!engine.device.empty()) out.engine += fmt::format(" on {}", engine.device);
  const trace::Precision& precision = engine.precision;
  out.engine += fmt::format(", {}", precision.compute.value_or("precision unknown"));
  if (precision.activations && precision.activations != precision.compute)
    out.engine += ", activations " + *precision.activations;
  if (precision.kv && precision.kv != precision.compute) out.engine += ", kv " + *precision.kv;
  return out;
}

std::string markup(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  // The two characters that are valid UTF-8 and no XML.
  for (const std::string_view bad : {"\xef\xbf\xbe", "\xef\xbf\xbf"})
    for (size_t at = out.find(bad); at != std::string::npos; at = out.find(bad, at))
      out.replace(at, bad.size(), "\xef\xbf\xbd");
  return out;
}

}  // namespace lockstep::report
