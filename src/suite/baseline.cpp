#include <algorithm>
#include <cmath>
#include <map>

#include "report/summary.h"
#include "suite/results.h"

namespace lockstep::suite {
namespace {

// Another build or machine sums in another order: the worst of many rows then moves by about this
// part of itself, and by this part of the bound where it is small.
constexpr double kRatioShare = 0.25;
constexpr double kRatioFloor = 0.05;
constexpr double kKlFloor = 1e-9;

// Three standard errors of a mean. Of the spread only mean and worst are known: numbers from 0 to
// `worst` vary at most so much around their mean.
double kl_noise(const CaseResult& result) {
  if (!result.kl_mean || result.kl_positions == 0) return 0;
  const double mean = *result.kl_mean;
  const double worst = result.kl_worst.value_or(mean);
  const double variance = std::max(0.0, mean * (worst - mean));
  return 3 * std::sqrt(variance / static_cast<double>(result.kl_positions));
}

std::string worse(const CaseResult& before, const CaseResult& now) {
  if (before.worst_ratio && now.worst_ratio) {
    const double a = *before.worst_ratio, b = *now.worst_ratio;
    if (b > a + std::max(kRatioShare * a, kRatioFloor))
      return fmt::format("worse than the baseline: own error over bound {}, was {}",
                         report::short_number(b), report::short_number(a));
  }
  if (before.kl_mean && now.kl_mean) {
    const double a = *before.kl_mean, b = *now.kl_mean;
    const double noise = std::max({kl_noise(before), kRatioShare * a, kKlFloor});
    if (b > a + noise)
      return fmt::format("worse than the baseline: mean KL divergence {}, was {} (noise {})",
                         report::short_number(b), report::short_number(a),
                         report::short_number(noise));
  }
  return "";
}

}  // namespace

std::vector<std::string> hold_against(const Results& baseline, Results& results) {
  std::map<std::string, const CaseResult*> before;
  for (const CaseResult& result : baseline.results) before[result.id] = &result;
  std::vector<std::string> notes;
  int64_t fresh = 0;
  for (CaseResult& result : results.results) {
    const auto found = before.find(result.id);
    if (found == before.end()) {
      ++fresh;
      continue;
    }
    const CaseResult& old = *found->second;
    before.erase(found);
    if (result.status != Status::kPassed && result.status != Status::kKnown) continue;
    const std::string why = worse(old, result);
    if (why.empty()) continue;
    result.status = Status::kFailed;
    result.reason = why;
    result.known.clear();
  }
  if (fresh > 0) notes.push_back(fmt::format("{} results are not in the baseline", fresh));
  if (!before.empty() && results.complete && !results.part)
    notes.push_back(fmt::format("{} results of the baseline are not there any more, such as {}",
                                before.size(), before.begin()->first));
  return notes;
}

}  // namespace lockstep::suite
