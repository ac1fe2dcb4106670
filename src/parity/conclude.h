// From measurements and own errors to verdicts.
#pragma once

#include "parity/scope.h"

namespace lockstep::parity {

// Without a replay: the relative difference that rounding by the declared precision, added up
// over the layers, could explain. A guess, and said to be one in the report.
double allowed_difference(const Traces& traces, int64_t layer);

// Of one checkpoint that was measured and, where possible, replayed.
Verdict verdict_of(const CheckpointResult& result);

// The first defect, the fork, and the verdict on the whole.
void conclude(const Traces& traces, const Scope& scope, const CompareOptions& options,
              Comparison& out);

}  // namespace lockstep::parity
