// Replays what each side recorded and writes how far its ops are from what they should have been.
#pragma once

#include "parity/scope.h"

namespace lockstep::parity {

// Writes the judgements of the checkpoints of `scope.stretch`, by what each side says of itself.
void judge_rows(Scope& scope, const CompareOptions& options, int threads, Comparison& out);

// Needs the judgements of all checkpoints. Where a side does not say what its forward pass depended
// on, what fits best is found out and noted, and comes first in the side's `forwards`; the side is
// then judged anew.
void settle_sides(Scope& scope, const CompareOptions& options, int threads, Comparison& out);

// An error where the numbers of a side that names a file of another name do not fit the given one;
// a note where a side does not say which it ran and nothing fits.
Result<void> check_file(const SideScope& side, SideJudgement CheckpointResult::*judgement,
                        Comparison& out);

}  // namespace lockstep::parity
