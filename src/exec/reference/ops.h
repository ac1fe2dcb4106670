// What each op computes, in double precision: the definition that all else is judged by. Weights
// are decoded exactly; sums run in one fixed order, whatever the number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/executor.h"
#include "exec/reference/matrix.h"
#include "op/program.h"

namespace lockstep::exec::reference {

// Where the rows of a step stand in the sequence.
struct Place {
  std::span<const TokenId> tokens;
  int64_t first_position = 0;
};

// Evaluates one op from any inputs, in the order of Op::inputs. For Attention, k and v hold every
// position from 0 to the step's last one. The output has `width` columns. With `scores` given,
// Attention also fills scores and probs ([heads * tokens, positions] each).
struct Scores {
  Matrix scores;
  Matrix probs;
};
Matrix evaluate(const op::What& what, std::span<const Matrix* const> inputs, int64_t width,
                const Place& place, int threads, Scores* scores = nullptr);

}  // namespace lockstep::exec::reference
