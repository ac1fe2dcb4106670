// Opens the rows that a reader wants to see first: their numbers, and what they should have been.
#pragma once

#include "parity/scope.h"

namespace lockstep::parity {

// Writes `opened`: the first defect, the worst row of each checkpoint and side, then all that is
// wrong, the worst first, up to about `options.opened_bytes`.
void open_rows(const Traces& traces, const Scope& scope, const CompareOptions& options, int threads,
               Comparison& out);

// Writes the tokens of both sides, with their texts where the side ran the model that was given.
void list_tokens(const Scope& scope, const CompareOptions& options, Comparison& out);

}  // namespace lockstep::parity
