// What a deviation (op/deviation.h) makes of a result.
#pragma once

#include <span>

#include "exec/reference/matrix.h"
#include "op/deviation.h"

namespace lockstep::parity {

// Column i becomes what column columns[i] was. Nothing happens where there are none.
void take_columns(std::span<const int64_t> columns, exec::reference::Matrix& matrix);

// The variance of a result whose columns and size are others.
void deviate_variance(const op::Deviation& deviation, exec::reference::Matrix& variance);

// Another formula, other columns, a factor, a limit. `positions`: what the op takes its rows for.
void deviate(const op::Deviation& deviation, std::span<const exec::reference::Matrix* const> inputs,
             std::span<const int64_t> positions, exec::reference::Matrix& result);

}  // namespace lockstep::parity
