// What attention keeps of the positions before: keys and values of every layer, on the device.
#pragma once

#include <vector>

#include "exec/cuda/calls.h"
#include "exec/cuda/shared/memory.h"
#include "op/program.h"

namespace lockstep::exec::cuda {

class KvCache {
 public:
  // As halves, or in single precision.
  static KvCache plan(const op::Program& program, bool half);
  int64_t size_bytes() const { return bytes_; }
  Result<void> allocate();

  bool half() const { return half_; }
  // Of an Attention, once there is memory.
  Cache of(size_t op) const;

 private:
  struct Planes {
    int64_t high = 0, low = 0, shifts = 0;  // the latter two in single precision alone
  };
  struct Places {
    Planes keys, values;
  };

  bool half_ = false;
  int64_t positions_ = 0, bytes_ = 0;
  std::vector<Places> places_;  // by op
  DeviceMemory memory_;
};

}  // namespace lockstep::exec::cuda
