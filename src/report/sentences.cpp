// The sentences that tell a comparison: headline, evidence, tokens.
#include <algorithm>
#include <span>

#include <fmt/ranges.h>

#include "base/text.h"
#include "report/summary.h"

namespace lockstep::report {
namespace {

using parity::Comparison;
using parity::Side;

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

// "at blk.1.q, position 3", "between embedding and blk.0.output, position 3".
std::string place(const parity::Defect& defect) {
  const std::string name = printable(defect.checkpoint);
  if (defect.after)
    return fmt::format("between {} and {}, position {}",
                       defect.after->empty() ? "the tokens" : printable(*defect.after), name,
                       defect.position);
  return fmt::format("{} {}, position {}", defect.side == Side::kUndetermined ? "from" : "at", name,
                     defect.position);
}

std::string token_text(const std::optional<int32_t>& id, const std::optional<std::string>& text) {
  if (!id) return "has ended";
  return text ? fmt::format("{} '{}'", *id, printable(*text, 40)) : fmt::format("{}", *id);
}

// "3", "2 to 29", "0, 4, 8 to 11 and 7 more".
std::string ranges_text(std::span<const int64_t> numbers) {
  constexpr size_t kShown = 4;
  const auto all = ranges_of(numbers);
  std::string out;
  for (size_t i = 0; i < std::min(all.size(), kShown); ++i) {
    if (i > 0) out += ", ";
    out += all[i].first == all[i].second ? fmt::format("{}", all[i].first)
                                         : fmt::format("{} to {}", all[i].first, all[i].second);
  }
  if (all.size() > kShown) out += fmt::format(" and {} more", all.size() - kShown);
  return out;
}

std::string shape_sentence(const parity::ErrorShape& shape, bool scores) {
  const auto plural = [](size_t count) { return count == 1 ? "" : "s"; };
  const bool all_elements = shape.wrong_elements == shape.elements;
  std::string out =
      all_elements ? fmt::format("Wrong: all {} elements", shape.elements)
                   : fmt::format("Wrong: {} of {} elements", shape.wrong_elements, shape.elements);
  if (!all_elements && !shape.columns.empty())
    out += fmt::format(" ({}{} {})", scores ? "key" : "column", plural(shape.columns.size()),
                       ranges_text(shape.columns));
  const size_t heads = shape.wrong_heads.size();
  if (heads > 0 && static_cast<int64_t>(heads) < shape.heads)
    out += fmt::format(", in head{} {} of {}", plural(heads), ranges_text(shape.wrong_heads),
                       shape.heads);
  const auto wrong = static_cast<int64_t>(shape.positions.size());
  const char* same = wrong > 1 && shape.same_everywhere && !all_elements ? "the same " : "";
  if (wrong == shape.rows)
    out += shape.rows > 1 ? fmt::format(", {}at all {} positions", same, shape.rows) : "";
  else
    out += fmt::format(", {}at {} of {} positions ({})", same, wrong, shape.rows,
                       ranges_text(shape.positions));
  return out + ".";
}

std::string followers_sentence(const parity::Defect& defect) {
  if (defect.followers == 0) return {};
  return defect.followers == 1
             ? "One later checkpoint differs by what it inherits."
             : fmt::format("{} later checkpoints differ by what they inherit.", defect.followers);
}

// A choice of experts that the router does not lead to.
std::string experts_sentence(const parity::OwnError& own, double bound) {
  if (own.replayed < 0)
    return fmt::format("Slot {} holds {:.9g}, which is no expert or one that another slot has.",
                       own.worst_index, own.recorded);
  return fmt::format(
      "It took expert {:.9g} and left expert {:.9g}, whose score is larger by {}; rounding "
      "explains "
      "{}.",
      own.recorded, own.replayed, short_number(own.error), short_number(bound));
}

std::string choice_sentence(const parity::Choice& choice) {
  return fmt::format("It took token {} (logit {:.9g}); token {} has the largest logit ({:.9g}).",
                     choice.token, choice.logit, choice.largest, choice.largest_logit);
}

// Of logits that were cut off, so that nobody takes the verdict for one on all of them.
std::string cut_clause(const Comparison& c) {
  const auto logits = std::ranges::find(c.checkpoints, "logits", &parity::CheckpointResult::name);
  if (logits == c.checkpoints.end() || logits->share >= 1 || logits->positions == 0) return {};
  return fmt::format("only {} of each row of logits was recorded; ", percent(logits->share));
}

std::string defect_clause(const Comparison& c) {
  const parity::Defect& defect = *c.first_defect;
  if (!defect.choice) return fmt::format("{} {}", subject_of(defect.side), place(defect));
  const char* who = defect.side == Side::kBoth        ? "both sides"
                    : defect.side == Side::kReference ? "the reference"
                                                      : "the suspect";
  const auto& declared = defect.side == Side::kReference ? c.reference.choices : c.suspect.choices;
  return fmt::format("{} chose a token at position {} that {} cannot have chosen", who,
                     defect.position, parity::describe(declared.sampling));
}

}  // namespace

bool all_judged(const Comparison& c) {
  return c.positions_judged == c.positions_compared;
}

std::string token_sentence(const TokenPair& pair) {
  return fmt::format("Token {}: the reference {}, the suspect {}.", pair.index,
                     token_text(pair.reference, pair.reference_text),
                     token_text(pair.suspect, pair.suspect_text));
}

std::string fork_sentence(const Comparison& c) {
  const parity::Fork& fork = *c.fork;
  std::string out =
      fmt::format("The choice at position {}: margin {} in the reference, difference {}",
                  fork.position, short_number(fork.margin), short_number(fork.difference));
  const auto exact_tie = [](const std::optional<parity::Choice>& choice) {
    return choice && choice->tie && choice->is_largest;
  };
  if (fork.sampled)
    out += fmt::format(": chance, since the reference sampled with {} and the suspect with {}.",
                       parity::describe(c.reference.choices.sampling),
                       parity::describe(c.suspect.choices.sampling));
  else if (fork.tie && (exact_tie(fork.reference) || exact_tie(fork.suspect)))
    out += ": an exact tie, several tokens share the largest logit.";
  else
    out += fork.tie ? ": a tie that rounding decides." : ": not a tie that rounding explains.";
  const auto not_largest = [&](const char* side, const std::optional<parity::Choice>& choice,
                               const parity::SideChoices& all) {
    if (!choice || choice->is_largest || all.sampling.random()) return;
    out += fmt::format(" The {}'s choice is not its own largest logit ({} has {}, {} has {}).",
                       side, choice->token, short_number(choice->logit), choice->largest,
                       short_number(choice->largest_logit));
  };
  not_largest("reference", fork.reference, c.reference.choices);
  not_largest("suspect", fork.suspect, c.suspect.choices);
  return out;
}

std::string headline(const Comparison& c) {
  if (c.prompts) {
    std::string out =
        fmt::format("Not in parity: the prompts differ from token {} on: {}",
                    c.tokens.first_difference.value_or(0), printable(c.prompts->text));
    if (c.first_defect && c.first_defect->side != Side::kUndetermined)
      out += fmt::format("; and {}", defect_clause(c));
    return out;
  }
  if (c.first_defect && !c.parity) {
    if (!c.other_models.empty() && c.first_defect->side == Side::kUndetermined)
      return fmt::format("Not in parity: the sides ran different model files ({}), and differ {}",
                         printable(c.other_models), place(*c.first_defect));
    return fmt::format("Not in parity: {}", defect_clause(c));
  }
  const std::string covered = fmt::format("{}coverage {}", cut_clause(c), percent(c.coverage));
  if (c.verdict == "inconclusive") {
    const std::string but = !c.doubt.empty() ? fmt::format("{}; {}", c.doubt, covered)
                            : c.evidence.enough()
                                ? fmt::format("{} is less than the {} asked for", covered,
                                              percent(c.min_coverage.value_or(1)))
                                : fmt::format("{}; {}", c.evidence.missing, covered);
    return fmt::format("Inconclusive: nothing that was compared is wrong, but {}", but);
  }
  if (c.verdict == "different weights")
    return fmt::format(
        "Not in parity: the sides ran different weights ({}); each is within rounding by its own "
        "file; {}",
        printable(c.other_models.empty() ? "two model files" : c.other_models), covered);
  if (c.verdict == "different settings")
    return fmt::format(
        "Not in parity: the sides ran with different settings, {}; each is within "
        "rounding by its own",
        c.other_settings);
  if (c.verdict == "fork")
    return fmt::format("Not in parity: the sides choose different tokens at position {}; {}",
                       c.fork ? c.fork->position : 0, covered);
  if (!c.parity) return fmt::format("Not in parity: {}", c.verdict);
  std::string where;
  if (c.unproved.empty() && !all_judged(c))
    where = fmt::format(" at the {} (of {}) positions judged", c.positions_judged,
                        c.positions_compared);
  if (!c.evidence.asked) where += " at the checkpoints chosen";
  if (c.fork && c.fork->sampled)
    where += fmt::format(" up to the first choice; the two sampled differently ({} and {})",
                         parity::describe(c.reference.choices.sampling),
                         parity::describe(c.suspect.choices.sampling));
  std::string out = fmt::format("In parity{}: ", where);
  if (c.verdict == "exact")
    out += c.coverage < 1 ? "every number that both sides have is the same"
                          : "every number is the same";
  else if (!c.unproved.empty())
    out += "no difference is larger than the declared precision may explain";
  else if (c.verdict == "rounding")
    out += "both sides within rounding";
  else
    out += "every op within rounding, differences only inherited";
  if (!c.unproved.empty()) out += fmt::format("; nothing was proved: {}", printable(c.unproved));
  return fmt::format("{}; {}", out, covered);
}

std::vector<std::string> causes(const Subject& subject) {
  std::vector<std::string> out;
  for (const doctor::Diagnosis& d : subject.diagnoses) {
    const char* side = d.side == Side::kReference ? ", in the reference" : "";
    const std::string lead =
        d.cause == doctor::kUnknown
            ? fmt::format("Cause not known{}", side)
            : fmt::format("Cause{}: {} ({})", side, d.cause, d.proved ? "proved" : "consistent");
    std::string line = fmt::format("{}. {}.", lead, printable(d.text));
    if (d.layers.size() > 1) line += fmt::format(" Layers {}.", ranges_text(d.layers));
    if (!d.alternatives.empty())
      line += fmt::format(" Explains it as well: {}.", fmt::join(d.alternatives, ", "));
    if (!d.fix.empty()) line += fmt::format(" {}", d.fix);
    out.push_back(std::move(line));
  }
  return out;
}

std::string evidence(const Comparison& c, const Subject& subject) {
  if (c.prompts) return subject.difference ? token_sentence(*subject.difference) : std::string();
  if (c.verdict == "different settings" && c.explanation && !c.explanation->settings.empty())
    return "The two files say so: 'lockstep audit' shows their metadata side by side.";
  if (c.verdict == "different settings")
    return "Give both the same context length (--ctx of 'lockstep run') and the same rope "
           "settings.";
  if (!c.first_defect || c.parity) return {};
  const parity::Defect& defect = *c.first_defect;
  if (defect.choice) return choice_sentence(*defect.choice);
  const BoundedError own = bounded(defect.own);
  const bool proved = defect.side != Side::kUndetermined && c.unproved.empty();
  std::string out;
  if (proved && defect.checkpoint.ends_with(".ffn_choice")) {
    out = experts_sentence(defect.own, own.bound);
  } else if (own.measure == BoundedError::Measure::kNonFinite) {
    out = proved ? fmt::format("Recorded {} at element {}, where its inputs give {}.",
                               short_number(defect.own.recorded), defect.own.worst_index,
                               short_number(defect.own.replayed))
                 : "A NaN or infinity that the other side does not have.";
  } else if (!proved) {
    out =
        fmt::format("Difference {}, more than the {} that the declared precision may explain; {}.",
                    short_number(own.error), short_number(own.bound),
                    c.unproved.empty() ? "what it was made from was not recorded, so that nobody "
                                         "can tell which side is wrong: record 'ops'"
                                       : "a model file (-m) tells which side is wrong");
  } else {
    out = fmt::format("Own error {}, bound {}", short_number(own.error), short_number(own.bound));
    if (own.bound > 0) out += fmt::format(" ({} times)", short_number(own.error / own.bound));
    if (defect.own.worst_ratio > 0)
      out += fmt::format("; element {} is {:.9g}, should be {:.9g}", defect.own.worst_index,
                         defect.own.recorded, defect.own.replayed);
    out += ".";
  }
  const bool scores =
      defect.checkpoint.ends_with("attn_scores") || defect.checkpoint.ends_with("attn_probs");
  if (defect.shape) out += fmt::format(" {}", shape_sentence(*defect.shape, scores));
  if (defect.after)
    out += " The ops between were not recorded: record 'ops' to see which one it is.";
  if (const std::string more = followers_sentence(defect); !more.empty())
    out += fmt::format(" {}", more);
  return out;
}

}  // namespace lockstep::report
