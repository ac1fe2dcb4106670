// Rows of quantized weights as codes and scales (code_format.h), for executors that lay them out
// anew.
#pragma once

#include <cstdint>

#include "op/op.h"

namespace lockstep::exec {

inline constexpr int64_t kRowBlock = 256;

// Up to 256 columns of a row. Which scales count depends on the format's kind.
struct RowCodes {
  uint8_t codes[kRowBlock];
  uint16_t d = 0, d_min = 0;                                             // halves, of the block
  uint8_t scales[kRowBlock / 16] = {}, mins[kRowBlock / 16] = {};        // of each group
  uint16_t halves[kRowBlock / 32] = {}, half_mins[kRowBlock / 32] = {};  // of each group
};

// Columns [first, first + columns) of a row; `first` is a multiple of 256.
void read_codes(const op::Weight& weight, int64_t row, int64_t first, int64_t columns,
                RowCodes& out);

}  // namespace lockstep::exec
