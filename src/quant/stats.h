// Statistics of encoded values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace lockstep::quant {

// Of the finite values, except for the counts.
struct Stats {
  int64_t values = 0;      // all
  int64_t non_finite = 0;  // infinities and NaNs
  int64_t first_non_finite = -1;
  int64_t zeros = 0;  // of either sign
  float min = 0;
  float max = 0;
  double mean = 0;
  double squares = 0;  // sum of squared distances from the mean

  double deviation() const;  // standard deviation, of the values as the whole population

  void add(float value);
  void merge(const Stats& after);  // statistics of the values that follow
};

// The same whatever the number of threads: pieces of fixed size, merged in order. `values` is a
// multiple of the format's block.
Stats measure(Format format, const std::byte* source, int64_t values);

}  // namespace lockstep::quant
