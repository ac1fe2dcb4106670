// How far two traces are apart, by checkpoint: no replay, no judgement.
#pragma once

#include "parity/scope.h"

namespace lockstep::parity {

// Writes of each checkpoint the positions, metrics and the rows that stand out, and of the whole
// `coverage` and `choices`. Reads both traces once from front to back.
void measure(const Traces& traces, const Scope& scope, int threads, Comparison& out);

}  // namespace lockstep::parity
