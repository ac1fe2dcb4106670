// An op by many experts as an op by one expert after another, on the rows that chose each.
#pragma once

#include <algorithm>

#include "exec/reference/matrix.h"
#include "op/experts.h"

namespace lockstep::exec::reference {

// Calls f(linear of one expert, slots that chose it) for each expert that somebody chose.
template <class F>
void for_each_expert(const op::ExpertLinear& all, const Matrix& choice, const F& f) {
  const auto slots = op::slots_by_expert<double>(choice.values, choice.columns, all.experts);
  for (int64_t expert = 0; expert < all.experts; ++expert)
    if (const auto& chosen = slots[static_cast<size_t>(expert)]; !chosen.empty())
      f(op::expert_of(all, expert), chosen);
}

// The slots' rows of a matrix that has one of `width` numbers for each slot, or one for all.
inline Matrix rows_of_slots(const Matrix& matrix, int64_t width, std::span<const op::Slot> slots) {
  Matrix out(std::ssize(slots), width);
  for (int64_t r = 0; r < out.rows; ++r) {
    const auto [token, slot] = slots[static_cast<size_t>(r)];
    std::copy_n(matrix.row(token) + (matrix.columns == width ? 0 : slot * width), width,
                out.row(r));
  }
  return out;
}

// The reverse, into a matrix that has a row for each slot.
inline void put_rows_of_slots(const Matrix& rows, std::span<const op::Slot> slots, Matrix& out) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    const auto [token, slot] = slots[static_cast<size_t>(r)];
    std::copy_n(rows.row(r), rows.columns, out.row(token) + slot * rows.columns);
  }
}

}  // namespace lockstep::exec::reference
