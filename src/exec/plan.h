// A program as stages: what can be done between two meetings of all threads, or in one kernel.
#pragma once

#include <vector>

#include "exec/executor.h"
#include "op/program.h"

namespace lockstep::exec {

struct Stage {
  enum class Kind {
    kRows,      // ops on one token at a time: whoever takes a token takes it through all of them
    kProducts,  // Linear ops with the same input: their rows are shared out
    kExperts,   // ExpertLinear ops with the same inputs
    kAttention,
  };
  // What a kRows stage does, one after another.
  struct Task {
    enum class Kind {
      kOp,       // the op itself
      kPrepare,  // the op's first input becomes the columns of the coming products
      kAppend,   // keys and values of an Attention go to the cache
    };
    Kind kind = Kind::kOp;
    size_t op = 0;  // index into Program::ops
  };

  Kind kind = Kind::kRows;
  std::vector<Task> tasks;  // of kRows
  std::vector<size_t> ops;  // whose outputs are there when the stage is over, in order
};

struct Plan {
  std::vector<Stage> stages;
  // Values share buffers once nobody reads them any more: slot of each value, width of each slot.
  // Attention's scores and probabilities have none (-1).
  std::vector<int> slot_of;
  std::vector<int64_t> slot_widths;
};

Plan make_plan(const op::Program& program);

// By value: the first of a step's rows that somebody needs. That is the last one for what comes
// after the last attention of a prompt, unless all logits or those values are asked for.
std::vector<int64_t> first_rows(const op::Program& program, const Step& step);

}  // namespace lockstep::exec
