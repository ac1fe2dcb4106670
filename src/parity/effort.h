// What a judgement costs, for progress and for those who have little time.
#pragma once

#include <cstdint>

#include "op/program.h"
#include "trace/trace.h"

namespace lockstep::parity {

// Multiply-adds of judging a checkpoint at one position: its op, and what must be computed before
// it since the trace does not have it.
double effort_of(const op::Program& program, const trace::Trace& trace, op::ValueId id);

// Bytes of the model and of the trace that it reads, at most. Of the trace all positions count:
// attention at one of them reads the keys and values of those before, and whether another trace has
// the same numbers is asked of all.
double bytes_of(const op::Program& program, const trace::Trace& trace, op::ValueId id);

// How many of a trace's positions can be judged in that time on this machine, on both sides.
int64_t positions_within(double seconds, const op::Program& program, int64_t positions,
                         int threads);

}  // namespace lockstep::parity
