// One number of a checkpoint, worked out: the formula with the names of what goes into it, and the
// parts that matter most.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parity/replay.h"

namespace lockstep::doctor {

struct Working {
  struct Part {
    std::string
        name;  // "blk.0.q[5]", or of a sum "blk.0.attn_q.weight[5, 17] · blk.0.attn_norm[17]"
    double value = 0;
    std::vector<double> factors = {};  // of a term: its two
  };
  std::string formula;      // empty: there is none
  std::vector<Part> parts;  // of a sum: its largest terms, the largest first
  int64_t others = 0;       // terms of the sum that are not among the parts
  double others_sum = 0;
  double value = 0;  // what this gives
};

// Where a number stands: "head 3, key 7", "head 3, column 5", "output row 12". `columns`: of the
// row, which is heads * keys for scores.
std::string place_of(const op::Program& program, op::ValueId id, int64_t column, int64_t columns);

// `replay`: of `forward`.
Working work_out(parity::Replay& replay, const parity::Forward& forward, const trace::Trace& trace,
                 std::span<const int32_t> tokens, op::ValueId id, int64_t position, int64_t column,
                 int64_t columns);

}  // namespace lockstep::doctor
