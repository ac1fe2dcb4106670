// How far formats may take numbers apart: what tells quantization from a mistake.
#pragma once

#include <cstdint>

#include "quant/format.h"

namespace lockstep::audit {

// Sums of squared errors over a run of values.
struct Rounding {
  double encoder = 0;   // what our encoder makes of the values, in the coarser format
  double expected = 0;  // what both formats may do to the values that both files came from

  Rounding& operator+=(const Rounding& other) {
    encoder += other.encoder;
    expected += other.expected;
    return *this;
  }
};

// Of n values (whole blocks of both formats, at most kPiece), as the finer side has them. Those
// that are not finite count as 0.
//
// Values that were encoded before lie on a grid, which the same format hits again without an error.
// So a mix of neighbours, which lies on no grid, is encoded too, and the larger error counts.
// Floats may be off by one unit of their last place: some programs cut instead of rounding.
Rounding rounding_of(const quant::FormatInfo& finer, const quant::FormatInfo& coarser,
                     const float* values, int64_t n);

// One unit in the last place of a float format, relative to the value; 0 for quantized ones.
double unit_of(const quant::FormatInfo& format);

}  // namespace lockstep::audit
