// The ops that compute each token's row on its own.
#pragma once

#include <span>

#include "exec/cpu/kernels/kernels.h"
#include "exec/executor.h"
#include "exec/rope_table.h"
#include "op/program.h"

namespace lockstep::exec::cpu {

// One op on one row.
struct RowCall {
  const Kernels& kernels;
  TokenId token = 0;
  int64_t position = 0;
  int64_t row = 0;  // of the step
  std::span<const float* const> inputs;
  int64_t first_width = 0, second_width = 0;  // of the inputs
  float* out = nullptr;
  int64_t width = 0;                // of out
  const float* weight = nullptr;    // of a Norm
  const float* bias = nullptr;      // of a Norm or a Choose; may be null
  const RopeTable* rope = nullptr;  // of a Rope
};
void evaluate_row(const op::What& what, const RowCall& call);

}  // namespace lockstep::exec::cpu
