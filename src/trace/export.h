// A trace becomes a JSONL log or an archive for numpy.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "trace/trace.h"

namespace lockstep::trace {

// A line for each position and checkpoint, the first `values` numbers of each. Returns the lines.
Result<int64_t> export_jsonl(const Trace& trace, const std::vector<std::string>& checkpoints,
                             int64_t values, const std::string& path);

// An array for each checkpoint, [n_positions, width], and `positions`. A checkpoint that lacks some
// of the positions (logits of sampled tokens only) has its own as `<checkpoint>.positions`.
// Attention scores and probabilities: [n_positions, heads, most positions], NaN where there is
// nothing. Returns the arrays.
Result<int64_t> export_npz(const Trace& trace, const std::vector<std::string>& checkpoints,
                           const std::string& path);

// Positions where the trace has the checkpoint, in order.
std::vector<int64_t> positions_of(const Trace& trace, const std::string& checkpoint);

}  // namespace lockstep::trace
