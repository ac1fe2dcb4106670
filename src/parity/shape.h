// The shape of an error: which elements, heads and positions are wrong.
#pragma once

#include "parity/compare.h"
#include "parity/scope.h"

namespace lockstep::parity {

// Heads that a value has: those of the attention that it goes into or comes from; 0: none.
int64_t heads_of(const op::Program& program, op::ValueId id);

// Of the first defect, on the side that has it (of both: the suspect).
void find_shape(const Scope& scope, const CompareOptions& options, int threads, Comparison& out);

}  // namespace lockstep::parity
