// How fast the memory can be read: the limit of generation, which reads every weight once a token.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace lockstep {

struct Bandwidth {
  double bytes_per_second = 0;
  int64_t buffer_bytes = 0;
};

// A buffer for the measurement that the last-level cache cannot hold, and that memory can.
int64_t bandwidth_buffer_bytes();

// The best of several passes in which `threads` threads read a buffer once, each its own part.
Result<Bandwidth> measure_read_bandwidth(int threads,
                                         int64_t buffer_bytes = bandwidth_buffer_bytes());

}  // namespace lockstep
