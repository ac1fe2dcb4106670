// Where the numbers of HeadParts come from.
#pragma once

#include "op/op.h"

namespace lockstep::op {

struct HeadPlace {
  size_t input = 0;
  int64_t column = 0;
};

// Of a column of the result; widths are those of whole rows, 0 where there is no second input.
inline HeadPlace place_in_heads(const HeadParts& parts, int64_t x_width, int64_t y_width,
                                int64_t out_width, int64_t column) {
  const int64_t size = out_width / parts.heads;
  const int64_t head = column / size, i = column % size;
  if (i < parts.width) return {0, head * (x_width / parts.heads) + parts.first + i};
  const int64_t rest = size - parts.width;
  return {1, (y_width == rest ? 0 : head * rest) + i - parts.width};
}

}  // namespace lockstep::op
