// The forward pass that one side is held against. Besides the model file it depends on what the
// side says of its run: the length of its context, and rope settings of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "op/deviation.h"
#include "op/program.h"
#include "trace/trace.h"

namespace lockstep::parity {

struct Forward {
  op::Program program;
  // The context may grow with the positions: then steps that end within `early_end` positions have
  // a program of their own. The two differ in their ropes alone.
  std::optional<op::Program> early;
  int64_t early_end = 0;
  // What it depends on besides the file, where that makes a difference: "a context of ...".
  std::string settings;
  bool assumed = false;            // the side does not say its context
  op::Deviations deviations = {};  // of both programs; empty: the forward pass is as it should be
};

// The positions that exist when this one is computed.
int64_t step_end(const trace::Trace& trace, int64_t position);

// One side's forward pass, and the trace whose steps decide where it changes.
struct Traced {
  const Forward& forward;
  const trace::Trace& trace;
};

// Whether the two turn one of these positions differently.
bool ropes_differ(const Traced& a, const Traced& b, std::span<const int64_t> positions);

// The likeliest first. There are several only where the side does not say what it depended on.
Result<std::vector<Forward>> forwards_of(const model::Model& model, const trace::Trace& trace);

}  // namespace lockstep::parity
