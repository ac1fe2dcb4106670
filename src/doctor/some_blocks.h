// Finds the blocks of a weight's rows that are decoded otherwise than the rest.
#pragma once

#include <vector>

#include "doctor/find_decoding.h"

namespace lockstep::doctor {

struct WrongProducts {
  const op::Weight& weight;
  const Matrix& x;
  const Matrix& y;                      // as recorded
  const Matrix& truth;                  // as they should be
  const std::vector<int64_t>& outputs;  // the wrong ones
};

// Of the given decodings of whole weights those that may be true of some blocks of every wrong
// output, with these blocks. They are to be held against all numbers: here they were fitted to
// some.
std::vector<DecodingFit> find_blocks(const WrongProducts& wrong, std::vector<DecodingFit> fits);

// A row of the weight, decoded as the fit says; null: truly.
void decode_fit_row(const op::Weight& weight, int64_t row, const DecodingFit* fit, float* out);

}  // namespace lockstep::doctor
