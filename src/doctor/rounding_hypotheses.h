// Rounding that is not declared, in a stretch whose inner values were not recorded, or never are:
// replayed with what is rounded in it. Where all that an op reads was recorded, its numbers tell
// more (find_precision.h).
#pragma once

#include <vector>

#include "doctor/examination.h"

namespace lockstep::doctor {

// On these ops, which are of one kind. Empty where the engine declares a coarse type.
std::vector<Hypothesis> rounding_hypotheses(const Examination& examination,
                                            std::span<const size_t> ops);

}  // namespace lockstep::doctor
