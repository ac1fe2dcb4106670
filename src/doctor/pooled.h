// Mistakes that no single row shows. A coarse type grants every row so much rounding that a small
// mistake hides in it. But rounding has no direction and a mistake has one: over all rows together
// the hypothesis that is true explains more than chance lets any other explain.
#pragma once

#include <optional>
#include <vector>

#include "doctor/diagnosis.h"
#include "doctor/examination.h"

namespace lockstep::doctor {

// What is best supported at one checkpoint.
struct Pooled {
  Hypothesis hypothesis;
  size_t op = 0;
  // Logarithm of how much likelier the recorded numbers are under the hypothesis:
  // N/2 ln(squares of the errors without it / with it).
  double likelihood = 0;
  double share = 1;                       // of the squares, what it leaves
  int64_t rows = 0;                       // that were pooled
  std::vector<std::string> alternatives;  // causes that are as well supported
};

// Some hundred hypotheses at some hundred checkpoints: on honest engines the best of them stays
// below 32.
inline constexpr double kConvincingLikelihood = 100;

// `patient.wrong`: the rows to pool. Of checkpoints whose op stands alone. Nothing: no hypothesis
// is supported.
std::optional<Pooled> find_pooled(Examination& examination);

}  // namespace lockstep::doctor
