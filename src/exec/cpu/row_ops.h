// The ops that compute each token's row on its own.
#pragma once

#include <span>
#include <vector>

#include "exec/cpu/kernels/kernels.h"
#include "exec/executor.h"
#include "op/program.h"

namespace lockstep::exec::cpu {

// Cosines and sines of a step's positions: [tokens][pairs], times the rotation's magnitude.
struct RopeTable {
  std::vector<double> frequencies;
  double magnitude = 1;
  std::vector<float> cosines, sines;

  explicit RopeTable(const op::Rope& rope);
  bool serves(const op::Rope& rope) const;
  void fill(int64_t first_position, int64_t tokens);
};

// One op on one row.
struct RowCall {
  const Kernels& kernels;
  TokenId token = 0;
  int64_t position = 0;
  int64_t row = 0;  // of the step
  std::span<const float* const> inputs;
  float* out = nullptr;
  int64_t width = 0;                // of out
  const float* weight = nullptr;    // of a Norm
  const float* bias = nullptr;      // of a Norm; may be null
  const RopeTable* rope = nullptr;  // of a Rope
};
void evaluate_row(const op::What& what, const RowCall& call);

}  // namespace lockstep::exec::cpu
