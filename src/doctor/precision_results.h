// How recorded results stand to the true ones, if the engine rounded them to a grid.
#pragma once

#include <vector>

#include "doctor/precision_sample.h"
#include "parity/own_error.h"

namespace lockstep::doctor {

// Over the numbers that tell something: those whose true results are not on the grid.
struct OnGrid {
  int64_t numbers = 0;
  int64_t on = 0;
  int64_t exact = 0;  // of those: what the true result is rounded to
  bool near = true;   // all are that or beside it
  double worst = 0;   // distance from the true result beyond half a spacing, over the bound
};

// A plain grid. `truth`: the sample's own, or its fused one.
OnGrid hold_to_grid(const Grid& grid, const PrecisionSample& sample, const Matrix& truth,
                    const std::vector<parity::OwnError>& errors);

// A grid with a scale. `rows`: the sample's rows as recorded, whole.
OnGrid hold_to_scaled_grid(const Grid& grid, const Matrix& rows, const PrecisionSample& sample,
                           const std::vector<parity::OwnError>& errors);

// Whether the recorded numbers are the true ones rounded, but for some that lie between two numbers
// of the grid and fell to the other side.
bool is_rounded(const OnGrid& held);

}  // namespace lockstep::doctor
