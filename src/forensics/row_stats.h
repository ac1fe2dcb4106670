// Statistics of one row, and the cheap signs that make it worth a closer look.
#pragma once

#include <cstdint>

#include "forensics/formats.h"
#include "forensics/source.h"

namespace lockstep::forensics {

struct RowStats {
  int64_t count = 0;
  int64_t finite = 0;
  double min = 0, max = 0, mean = 0, deviation = 0;  // of the finite ones
  int64_t zeros = 0;
  int64_t mask_values = 0;  // finite ones that stand for minus infinity
  int64_t denormals = 0;
  int64_t nans = 0;
  int64_t plus_infinities = 0, minus_infinities = 0;
  double median = 0;        // magnitude of the finite ones that are not 0, within a factor of 2
  double largest = 0;       // magnitude
  int64_t largest_at = -1;  // index
  Range zero_run;           // the longest stretch of zeros
  int64_t zero_lines = 0;   // lines (heads) of nothing but zeros
  uint64_t hash = 0;        // of all bytes
  bool varied = false;      // equal rows of this kind are no coincidence
  bool closer_look = false;
  std::optional<Format> format;  // what its numbers really are, where the row proves it

  int64_t non_finite() const { return nans + plus_infinities + minus_infinities; }
};

RowStats measure(const Row& row);

bool line_is_zero(const Row& row, int64_t line);

// A number that is too large for a row whose numbers are about `scale`. Real models have numbers up
// to 1e5 or so that are up to 1e5 times the rest ("massive activations"); these are far beyond.
bool is_huge(double value, double scale);

// Whether a number stands for minus infinity in masks: the most negative number of a type, -1e9 and
// other round ones.
bool is_mask_value(double value);

bool is_denormal(DType dtype, double value);

}  // namespace lockstep::forensics
