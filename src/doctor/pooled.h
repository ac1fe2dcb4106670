// Mistakes that no single row shows. A coarse type grants every row so much rounding that a small
// mistake hides in it. But rounding has no direction and a mistake has one: over all rows together
// the hypothesis that is true explains more than chance lets any other explain.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "doctor/diagnosis.h"
#include "doctor/examination.h"

namespace lockstep::doctor {

// What is best supported at a checkpoint, in one layer or in all that have it.
struct Pooled {
  Hypothesis hypothesis;
  std::vector<size_t> layers;  // of those that were given
  // Logarithm of how much likelier the recorded numbers are under the hypothesis:
  // N/2 ln(squares of the errors without it / with it).
  double likelihood = 0;
  double share = 1;                       // of the squares, what it leaves
  int64_t rows = 0;                       // that were pooled
  std::vector<std::string> alternatives;  // causes that are as well supported
};

// Of some hundred hypotheses at some hundred checkpoints of honest engines, the best has 32 where
// errors of a row are independent. Where they are not, rows tell (pooled.cpp).
inline constexpr double kConvincingLikelihood = 50;

// `layers`: examinations of one checkpoint in several layers, whose `patient.wrong` are the rows to
// pool. Of checkpoints whose op stands alone. Nothing: no hypothesis is supported.
std::optional<Pooled> find_pooled(std::span<const std::unique_ptr<Examination>> layers);

}  // namespace lockstep::doctor
