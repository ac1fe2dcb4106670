// Whether an executor holds the weights that the file has.
#pragma once

#include <string>
#include <vector>

#include "exec/executor.h"

namespace lockstep::engine {

struct WeightCheck {
  std::string tensor;
  int64_t values = 0;
  int64_t wrong = 0;
  int64_t first_wrong = -1;  // counted in the order of the file
  float expected = 0, actual = 0;
};

// Reads every weight of the program back, or the one of that name, and compares it with the file,
// value by value. Shows its progress.
Result<std::vector<WeightCheck>> verify_weights(const op::Program& program,
                                                const exec::Executor& executor,
                                                const std::string& only = "");

}  // namespace lockstep::engine
