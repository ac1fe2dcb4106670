#include "report/summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "base/text.h"
#include "trace/checkpoints.h"

namespace lockstep::report {
namespace {

using parity::CheckpointResult;
using parity::Comparison;
using parity::Side;
using parity::Verdict;

std::string tokens_fact(const Comparison& c, const Subject& subject) {
  if (!c.tokens.known) return "not recorded on both sides";
  std::string out = c.tokens.agree && c.tokens.same_prompt
                        ? fmt::format("all {} agree", c.tokens.shared)
                        : fmt::format("{} agree, then they part", c.tokens.shared);
  if (c.tokens.agree && c.tokens.same_prompt) return out;
  out += ".";
  if (subject.difference) out += fmt::format(" {}", token_sentence(*subject.difference));
  if (c.fork) out += fmt::format(" {}", fork_sentence(c));
  return out;
}

std::string judged_fact(const Comparison& c) {
  if (!c.unproved.empty()) return fmt::format("nothing: {}", c.unproved);
  std::string out = fmt::format("{} of those were replayed", percent(c.judged));
  if (!all_judged(c))
    out += fmt::format(": {} of {} positions{}", c.positions_judged, c.positions_compared,
                       c.positions_chosen ? ", as chosen; nothing is said of the others" : "");
  const int64_t a = c.reference.beyond_shared;
  const int64_t b = c.suspect.beyond_shared;
  if (a + b > 0)
    out += fmt::format(
        "; beyond what both have, {} positions of the reference and {} of the suspect, each on "
        "its own tokens",
        a, b);
  return out;
}

std::optional<std::string> choices_fact(const Comparison& c) {
  if (c.choices.compared == 0) {
    const auto logits = std::ranges::find(c.checkpoints, "logits", &CheckpointResult::name);
    if (logits == c.checkpoints.end() || logits->positions == 0) return std::nullopt;
    return "not known: only the first numbers of each row of logits were recorded";
  }
  std::string out = fmt::format("the same largest logit at {} of {} positions", c.choices.same,
                                c.choices.compared);
  if (c.choices.divergences > 0)
    out += fmt::format("; KL divergence mean {}, worst {}", short_number(c.choices.mean_kl()),
                       short_number(c.choices.worst_kl));
  for (const auto& [name, side] :
       {std::pair("reference", &c.reference), std::pair("suspect", &c.suspect)})
    if (side->choices.ties > 0)
      out += fmt::format("; {} exact ties in the {}", side->choices.ties, name);
  return out;
}

std::string verdict_counts(const Comparison& c) {
  std::array<int64_t, 8> counts{};
  for (const CheckpointResult& result : c.checkpoints)
    if (result.known) ++counts.at(static_cast<size_t>(result.verdict));
  std::string out =
      fmt::format("{}: ", std::ranges::count_if(c.checkpoints, &CheckpointResult::known));
  const char* separator = "";
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts.at(i) == 0) continue;
    out += fmt::format("{}{} {}", separator, counts.at(i), parity::name(static_cast<Verdict>(i)));
    separator = ", ";
  }
  return out;
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

std::vector<Fact> facts(const Comparison& c, const Subject& subject) {
  std::vector<Fact> out;
  const auto party = [](const Party& p) {
    return fmt::format("{} ({})", printable(p.path), printable(p.engine));
  };
  out.push_back({"reference", party(subject.reference)});
  out.push_back({"suspect", party(subject.suspect)});
  if (!subject.model.empty())
    out.push_back(
        {"model", subject.suspect_model.empty()
                      ? printable(subject.model)
                      : fmt::format("{} for the reference, {} for the suspect",
                                    printable(subject.model), printable(subject.suspect_model))});
  out.push_back({"tokens", tokens_fact(c, subject)});
  if (const auto choices = choices_fact(c)) out.push_back({"choices", *choices});
  out.push_back({"coverage", fmt::format("{} of the rows are on both sides", percent(c.coverage))});
  out.push_back({"judged", judged_fact(c)});
  out.push_back({"checkpoints", verdict_counts(c)});
  return out;
}

std::vector<const CheckpointResult*> stations(const Comparison& c) {
  std::vector<const CheckpointResult*> out;
  for (const CheckpointResult& result : c.checkpoints) {
    if (trace::in_checkpoints("layers", result.name) && result.positions > 0)
      out.push_back(&result);
  }
  return out;
}

double worst_ratio(const CheckpointResult& result) {
  double out = 0;
  for (const auto* side : {&result.reference, &result.suspect})
    if (side->worst) out = std::max(out, side->worst->non_finite ? INFINITY : side->worst->ratio());
  return out;
}

// By what the verdict is about: defects first; where ops were judged, by how near they come to
// their bound; where nothing was, by the difference.
std::vector<const CheckpointResult*> worst(const Comparison& c, size_t most) {
  std::vector<const CheckpointResult*> out;
  for (const CheckpointResult& result : c.checkpoints)
    if (result.known && result.verdict != Verdict::kExact && result.verdict != Verdict::kMissing)
      out.push_back(&result);
  const auto severity = [](const CheckpointResult& result) {
    return result.verdict > Verdict::kClose ? static_cast<int>(result.verdict) : 0;
  };
  std::ranges::stable_sort(out, [&](const CheckpointResult* a, const CheckpointResult* b) {
    if (severity(*a) != severity(*b)) return severity(*a) > severity(*b);
    if (worst_ratio(*a) != worst_ratio(*b)) return worst_ratio(*a) > worst_ratio(*b);
    return a->worst_relative_l2 > b->worst_relative_l2;
  });
  if (out.size() > most) out.resize(most);
  return out;
}

std::vector<std::pair<int64_t, int64_t>> ranges_of(std::span<const int64_t> numbers) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const int64_t number : numbers)
    if (!out.empty() && out.back().second + 1 == number)
      out.back().second = number;
    else
      out.emplace_back(number, number);
  return out;
}

Party describe(const trace::Trace& trace) {
  const trace::EngineInfo& engine = trace.manifest().engine;
  Party out{trace.folder(), engine.name};
  if (!engine.version.empty()) out.engine += fmt::format(" {}", engine.version);
  if (!engine.device.empty()) out.engine += fmt::format(" on {}", engine.device);
  out.engine += fmt::format(", {}", parity::describe(engine.precision));
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
