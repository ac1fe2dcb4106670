#include "parity/evidence.h"

#include <algorithm>
#include <set>

#include "trace/checkpoints.h"

namespace lockstep::parity {
namespace {

// Of positions from whose logits nobody chose a token, this part needs them.
constexpr double kEnough = 0.9;

// Positions from whose logits a side chose a token, up to the fork.
void add_sampled(const trace::Manifest& manifest, const TokenAgreement& tokens,
                 std::set<int64_t>& out) {
  if (manifest.prompt_tokens == 0) return;  // the side does not say
  auto end = static_cast<int64_t>(manifest.tokens.size()) - 1;
  if (tokens.first_difference) end = std::min(end, *tokens.first_difference);
  for (int64_t p = manifest.prompt_tokens - 1; p < end; ++p) out.insert(p);
}

}  // namespace

Evidence find_evidence(const Scope& scope, const CompareOptions& options, const Comparison& c) {
  const trace::Trace& a = *scope.reference.trace;
  const trace::Trace& b = *scope.suspect.trace;
  Evidence out;
  out.asked = trace::in_checkpoints(options.checkpoints, "logits");
  if (!out.asked) return out;
  std::set<int64_t> needed;
  add_sampled(a.manifest(), c.tokens, needed);
  add_sampled(b.manifest(), c.tokens, needed);
  out.sampled = !needed.empty();
  if (!out.sampled) needed.insert(scope.anywhere.begin(), scope.anywhere.end());
  out.needed = static_cast<int64_t>(needed.size());
  int64_t lacking[2] = {0, 0};
  std::optional<int64_t> first;
  for (const int64_t position : needed) {
    const bool in_a = a.row("logits", position).has_value();
    const bool in_b = b.row("logits", position).has_value();
    lacking[0] += in_a ? 0 : 1;
    lacking[1] += in_b ? 0 : 1;
    if (in_a && in_b)
      ++out.found;
    else if (!first)
      first = position;
  }
  const double share = out.sampled ? 1 : kEnough;
  if (out.needed > 0 && static_cast<double>(out.found) >= share * static_cast<double>(out.needed))
    return out;
  const char* whose = lacking[0] > 0 && lacking[1] > 0 ? "neither side has"
                      : lacking[0] > 0                 ? "the reference has no"
                                                       : "the suspect has no";
  if (!a.has("logits") && !b.has("logits"))
    out.missing = "neither side recorded logits";
  else if (!a.has("logits") || !b.has("logits"))
    out.missing =
        fmt::format("the {} recorded no logits", a.has("logits") ? "suspect" : "reference");
  else if (out.needed == 0)
    out.missing = "no position is on both sides";
  else
    out.missing = fmt::format("{} logits at {} of the {} positions{}, first at {}", whose,
                              out.needed - out.found, out.needed,
                              out.sampled ? " that were sampled from" : "", *first);
  return out;
}

}  // namespace lockstep::parity
