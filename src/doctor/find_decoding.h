// Finds out which wrong decoding of a quantized weight gave the recorded outputs of a projection.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "doctor/decodings.h"
#include "exec/reference/matrix.h"
#include "parity/arithmetic.h"

namespace lockstep::doctor {

using exec::reference::Matrix;

// A projection as it should be, and what an engine recorded of it: a row a position. Outputs are as
// recorded, with the bias. They may be cut off (a vocabulary without its padding).
struct Projection {
  const op::Linear& linear;
  const Matrix& x;
  const Matrix& y;
  parity::Arithmetic arithmetic;  // of the engine
};

// A wrong decoding, of a whole weight or of a part of it. Indices ascend; empty means all.
struct DecodingFit {
  const Decoding* decoding = nullptr;
  const Decoding* also = nullptr;  // a second mistake, in the same blocks
  std::vector<int64_t> outputs{};  // rows of the weight that are decoded so
  std::vector<int64_t> blocks{};   // of each of these rows
  int64_t rows = 0;                // of the recorded ones that were held against it
  int64_t explained = 0;           // of those, within rounding
  double ratio_before = 0;         // of the worst row: its error over the bound, as it should be
  double ratio_after = 0;          // and decoded so

  bool explains() const { return rows > 0 && explained == rows; }
};

// The best first. Those that explain come before all others, and they are the same on these inputs:
// none can be told from the other. A decoding that explains nothing is here for its score alone: it
// was tried on a few outputs. Empty where the true decoding explains every row, and for formats
// that are not quantized.
//
// That a decoding explains is proof: its outputs are the recorded ones within single rounding
// errors, at outputs and positions far more than the choices that were made (some hundred
// decodings, and which blocks).
std::vector<DecodingFit> find_decoding(const Projection& projection, int threads);

// The same for rows of a table that were looked up: `rows` of it, and what was recorded of each.
struct Lookup {
  const op::Weight& table;
  std::span<const int64_t> rows;
  const Matrix& y;
  parity::Arithmetic arithmetic;
};
std::vector<DecodingFit> find_decoding(const Lookup& lookup);

// "takes the scale of the next block, in blocks 3 and 4 of 28 of each row".
std::string describe(const DecodingFit& fit, const op::Weight& weight);

// The whole weight, decoded so where the fit says it, as a weight of f32.
struct DecodedWeight {
  std::vector<float> numbers;
  op::Weight weight;  // of `numbers`
};
std::unique_ptr<DecodedWeight> decode_fit(const op::Weight& weight, const DecodingFit& fit,
                                          int threads);

// Products with the f32 copy of a quantized weight have the rounding that those with the weight
// itself have.
parity::Arithmetic for_copy(const parity::Arithmetic& arithmetic, const op::Weight& weight);

}  // namespace lockstep::doctor
