// Eight sums at a time, each with its own terms: attention's scores of eight keys, or eight numbers
// of its mix. term = factor * number, where the sums have the factors in common.
#pragma once

#include <cstddef>
#include <cstdint>

#include "parity/wide.h"

namespace lockstep::parity {

struct LaneTerms {
  const double* factors = nullptr;  // by term
  const double* numbers = nullptr;  // of a term: its lanes, side by side
  int64_t stride = 0;               // from a term's numbers to the next one's
  const int64_t* places = nullptr;  // of terms, in strides; null: one after another
  size_t count = 0;                 // terms
  size_t lanes = kTermLanes;        // that are there

  const double* at(size_t i) const {
    return numbers + stride * (places != nullptr ? places[i] : static_cast<int64_t>(i));
  }
};

// The sums, one term after another; `squared`: of factor * number^2.
void lane_sums(const LaneTerms& terms, double* sums, bool squared = false);
// The sums of a dot product and of a mix, by the operations of exec/reference/ops.cpp in their
// order: the same bits.
void lane_dots(const LaneTerms& terms, double* sums);
void lane_mixes(const LaneTerms& terms, double* sums);

// What rounding does to each sum, where its terms are added up one by one (summation.h), and more.
// Arrays are by lane.
struct LaneNoise {
  double variance[kTermLanes];
  int64_t settled[kTermLanes];  // 0: the terms have to be looked at one by one
  double squares[kTermLanes];
  double number_squares[kTermLanes];  // of the numbers alone
  double spread[kTermLanes];          // of variances times the squares of numbers from the sum
};
// `sums`: as they are; `variances`: by term, may be null.
void lane_noise(const LaneTerms& terms, const double* sums, double unit_of_type,
                const double* variances, LaneNoise& out);

}  // namespace lockstep::parity
