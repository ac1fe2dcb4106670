// The numbers of a tensor in another order. Within this folder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/config.h"

namespace lockstep::hub {

// Where the numbers come from, one after another: four loops, the last one innermost.
struct Order {
  std::array<int64_t, 4> extents;
  std::array<int64_t, 4> steps;
  int64_t first = 0;

  int64_t numbers() const { return extents[0] * extents[1] * extents[2] * extents[3]; }
};

struct Reordered {
  std::vector<int64_t> shape;
  Order order;
};

// What becomes of a tensor with `shape` that will be called `name`. The error says what the shape
// is and what it should be.
Result<Reordered> reorder(Change change, const std::vector<int64_t>& shape, std::string_view name,
                          const Config& config);

// Numbers of `width` bytes each.
void copy_in_order(const std::byte* from, const Order& order, int64_t width, std::byte* out);

}  // namespace lockstep::hub
