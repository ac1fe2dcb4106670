// Two tensors of the same number of values, number by number.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "audit/values.h"

namespace lockstep::audit {

// Root mean square errors up to so many times what the formats explain are quantization: encoders
// differ, and some weigh their errors by an importance matrix. Of a whole sample, and of a piece of
// kPiece values, which has more chance in it.
inline constexpr double kTensorLimit = 2.5;
inline constexpr double kPieceLimit = 4;

struct Measured {
  int64_t values = 0;
  double squares = 0;            // of the finer side's values, added up
  double square_errors = 0;      // of the differences, where both sides are finite
  double best_scale_errors = 0;  // of what the best scale for every 32 values leaves
  double scale = 1;              // finer side ~ scale * coarser side, by least squares
  bool finer_is_a = true;
  int64_t not_finite_once = 0;   // NaN or infinite on one side, or not the same on both
  int64_t not_finite_twice = 0;  // the same on both

  // Of a sample: relative to the root mean square of its values.
  double sample_error = 0;
  double encoder_error = 0;
  double expected_error = 0;
  bool sample_is_wrong = false;

  // By piece of kPiece values: more errors than the formats explain.
  std::vector<uint8_t> bad;
  int64_t bad_pieces = 0;

  bool equal() const { return square_errors == 0 && not_finite_once == 0; }
  // Root mean squares, relative to that of the values; 0 where nothing differs.
  double error() const;
  double best_scale_error() const;
  // The formats explain all differences.
  bool explained() const;
  // One scale over all that no encoder leaves; the formats explain the rest.
  bool scaled() const;

  double scaled_error = 0;     // relative, with the best scale over all
  double tolerated_scale = 0;  // |scale - 1| of sound encoders
};

// On all cores, in pieces: the files may be larger than memory. Both have the same number of
// values; of files with more, `values` are looked at. `advance` is told values that were done.
Measured measure(const Values& a, const Values& b, int64_t values,
                 const std::function<void(int64_t)>& advance);

}  // namespace lockstep::audit
