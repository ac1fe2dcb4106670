// The shape of an error: which elements, heads and positions are wrong.
#pragma once

#include "parity/compare.h"
#include "parity/scope.h"

namespace lockstep::parity {

// Of the first defect, on the side that has it (of both: the suspect).
void find_shape(const Scope& scope, const CompareOptions& options, int threads, Comparison& out);

}  // namespace lockstep::parity
