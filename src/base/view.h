#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace lockstep {

// Numbers that somebody else owns, row-major.
struct View {
  DType dtype = DType::kF64;
  const void* data = nullptr;
  std::vector<int64_t> shape;

  int64_t size() const {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
  }
  double at(int64_t index) const {  // any dtype, as double
    return load_number(dtype, static_cast<const std::byte*>(data) + index * size_bytes(dtype));
  }
};

}  // namespace lockstep
