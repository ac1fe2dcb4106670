#include "suite/judged.h"

#include <algorithm>

#include "report/json.h"
#include "report/summary.h"

namespace lockstep::suite {
namespace {

bool is_wrong(const parity::SideJudgement& side) {
  return !side.defects.empty();
}

// Own error over bound of the suspect, over all checkpoints; a NaN has none.
std::optional<double> worst_ratio_of(const parity::Comparison& comparison) {
  std::optional<double> worst;
  for (const parity::CheckpointResult& checkpoint : comparison.checkpoints)
    if (checkpoint.suspect.worst && !checkpoint.suspect.worst->non_finite)
      worst = std::max(worst.value_or(0), checkpoint.suspect.worst->ratio());
  return worst;
}

}  // namespace

void fill_result(const report::Compared& compared, CaseResult& result) {
  const parity::Comparison& c = compared.comparison;
  const nlohmann::ordered_json document = report::comparison_json(c, compared.subject);
  result.parity = c.parity;
  result.verdict = c.verdict;
  result.headline = report::headline(c);
  result.first_defect = document["first_defect"];
  result.diagnoses = document["diagnoses"];
  for (const parity::CheckpointResult& checkpoint : c.checkpoints) {
    if (is_wrong(checkpoint.suspect)) result.defects.push_back(checkpoint.name);
    result.reference_wrong = result.reference_wrong || is_wrong(checkpoint.reference);
  }
  // What was not replayed, and the choice of a token, are told by the first defect alone.
  if (c.first_defect && result.defects.empty() && c.first_defect->side != parity::Side::kReference)
    result.defects.push_back(c.first_defect->checkpoint);
  if (c.first_defect && c.first_defect->side == parity::Side::kReference)
    result.reference_wrong = true;
  result.worst_ratio = worst_ratio_of(c);
  if (c.choices.divergences > 0) {
    result.kl_mean = c.choices.mean_kl();
    result.kl_worst = c.choices.worst_kl;
    result.kl_positions = c.choices.divergences;
  }
  result.coverage = c.coverage;
  result.judged = c.judged;
  result.status = c.parity ? Status::kPassed : Status::kFailed;
  if (!c.parity) {
    result.reason = result.headline;
    for (const std::string& cause : report::causes(compared.subject))
      result.reason += (result.reason.ends_with('.') ? " " : ". ") + cause;
  }
}

}  // namespace lockstep::suite
