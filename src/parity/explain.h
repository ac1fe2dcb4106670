// Why two sides differ that ran two model files: weights, rounding, or what came before.
#pragma once

#include "parity/scope.h"

namespace lockstep::parity {

// Needs a scope whose sides are both judged, each by its own file.
Result<Explanation> explain(const Traces& traces, const Scope& scope, const CompareOptions& options,
                            int threads, const Comparison& comparison);

// The parts of it, in files of their own. Numbers that the forward passes do not share, but for
// weights: "a rope base of 10000 in the reference and 500000 in the suspect (blk.0.q_rope)".
std::vector<std::string> other_settings_of(const op::Program& reference,
                                           const op::Program& suspect);
// What each part does to the next token, by two exact forward passes. Writes `choices`, or why
// there are none.
Result<void> explain_choices(const Traces& traces, const Scope& scope, int threads,
                             Explanation& out);

}  // namespace lockstep::parity
