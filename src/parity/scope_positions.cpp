// Which positions are replayed: all, or the user's, or a sample where there is little time.
#include <algorithm>
#include <limits>
#include <set>
#include <span>

#include "base/parallel.h"
#include "parity/effort.h"
#include "parity/scope.h"

namespace lockstep::parity {
namespace {

constexpr int64_t kFewest = 4;

// At most about `most` of them: the first and the last, those around `turn`, and the rest evenly.
std::vector<int64_t> sample(std::span<const int64_t> all, int64_t most, int64_t turn) {
  const auto count = static_cast<int64_t>(all.size());
  if (count <= most) return {all.begin(), all.end()};
  const auto at =
      std::clamp<int64_t>(std::ranges::lower_bound(all, turn) - all.begin(), 1, count - 1);
  std::set<int64_t> chosen = {0, at - 1, at, count - 1};
  for (int64_t i = 0; i < most; ++i) chosen.insert(i * (count - 1) / most);
  std::vector<int64_t> out;
  for (const int64_t i : chosen) out.push_back(all[static_cast<size_t>(i)]);
  return out;
}

// Positions of a side that can be replayed: it has a row, and it is known which token it was.
std::vector<int64_t> own_positions(const SideScope& side, int64_t context) {
  std::vector<int64_t> out;
  const auto end = std::min(context, static_cast<int64_t>(side.tokens.size()));
  for (const trace::StepInfo& step : side.trace->manifest().steps)
    for (int64_t p = step.first_position; p < std::min(end, step.first_position + step.tokens); ++p)
      out.push_back(p);
  return out;
}

std::vector<int64_t> in_both(std::span<const int64_t> a, std::span<const int64_t> b) {
  std::vector<int64_t> out;
  std::ranges::set_intersection(a, b, std::back_inserter(out));
  return out;
}

}  // namespace

Result<void> choose_replayed(const CompareOptions& options, Scope& scope, Comparison& out) {
  int64_t context = std::numeric_limits<int64_t>::max();
  for (const SideScope* side : {&scope.reference, &scope.suspect})
    if (side->judged()) context = std::min(context, side->model->config().context_length);
  const std::set<int64_t> wanted(options.positions.begin(), options.positions.end());
  const std::vector<int64_t> chosen(wanted.begin(), wanted.end());
  const int64_t affordable =
      options.budget > 0
          ? std::max(kFewest,
                     positions_within(options.budget, *scope.program(), std::ssize(scope.compared),
                                      options.threads > 0 ? options.threads : available_cores()))
          : std::numeric_limits<int64_t>::max();
  const int64_t turn = scope.reference.trace->manifest().prompt_tokens;
  const std::vector<int64_t> shared = sample(scope.compared, affordable, turn);
  const auto left = std::max(kFewest, affordable - static_cast<int64_t>(shared.size()));
  std::set<int64_t> found;
  for (SideScope* side : {&scope.reference, &scope.suspect}) {
    if (!side->judged()) continue;
    const std::vector<int64_t> own = own_positions(*side, context);
    if (!chosen.empty()) {
      side->replayed = in_both(chosen, own);
      found.insert(side->replayed.begin(), side->replayed.end());
      continue;
    }
    // After a fork, and beyond the other's end, a side is judged on its own tokens.
    std::vector<int64_t> alone;
    std::ranges::set_difference(own, scope.compared, std::back_inserter(alone));
    const std::vector<int64_t> together = in_both(shared, own);
    const std::vector<int64_t> beyond = sample(alone, left, turn);
    std::ranges::set_union(together, beyond, std::back_inserter(side->replayed));
    scope.sampled = scope.sampled || side->replayed.size() < own.size();
  }
  if (!chosen.empty()) {
    out.positions_chosen = true;
    if (found.empty() && !scope.compared.empty())
      return error("none of the chosen positions is among the {} that both traces have, {} to {}",
                   scope.compared.size(), scope.compared.front(), scope.compared.back());
    if (in_both(chosen, scope.compared).size() < chosen.size())
      out.notes.push_back(fmt::format("{} of the chosen positions are not on both sides",
                                      chosen.size() - in_both(chosen, scope.compared).size()));
  }
  scope.judged = scope.compared;
  for (const SideScope* side : {&scope.reference, &scope.suspect})
    if (side->judged()) scope.judged = in_both(scope.judged, side->replayed);
  out.positions_judged = static_cast<int64_t>(scope.judged.size());
  for (const auto& [side, summary] :
       {std::pair(&scope.reference, &out.reference), std::pair(&scope.suspect, &out.suspect)}) {
    summary->judged = side->judged();
    summary->positions = static_cast<int64_t>(side->replayed.size());
    summary->beyond_shared =
        summary->positions - static_cast<int64_t>(in_both(side->replayed, scope.compared).size());
  }
  if (scope.sampled)
    out.notes.push_back(
        fmt::format("{} of {} positions were replayed in the time given (--budget), and of each "
                    "checkpoint the one where the sides differ most",
                    scope.judged.size(), scope.compared.size()));
  if (!scope.compared.empty() && scope.compared.back() >= context)
    out.notes.push_back(fmt::format(
        "positions from {} on are beyond the model's context and were not replayed", context));
  return {};
}

}  // namespace lockstep::parity
