// How far two traces are apart, by checkpoint: no replay, no judgement.
#pragma once

#include "parity/scope.h"

namespace lockstep::parity {

// Writes of the checkpoints of `scope.stretch` the positions, metrics and the rows that stand out;
// of logits `choices`. Reads both traces once from front to back.
void measure(const Traces& traces, const Scope& scope, int threads, Comparison& out);

// Writes what follows from that for the whole: `coverage`, and rows that only one side has.
void measure_coverage(const Traces& traces, const Scope& scope, Comparison& out);

}  // namespace lockstep::parity
