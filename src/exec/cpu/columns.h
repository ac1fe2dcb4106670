// The inputs of the coming products, as the kernels want them.
#pragma once

#include "exec/cpu/huge_vector.h"
#include "exec/cpu/kernels/kernels.h"

namespace lockstep::exec::cpu {

class ColumnBuffer {
 public:
  // Which kinds of columns the products of a program need.
  void set_up(bool codes, bool floats) {
    codes_ = codes;
    floats_ = floats;
  }
  void reserve(int64_t length, int64_t count);

  // Columns [begin, end) of `count`, from rows of x. `begin` is at the start of a tile.
  void fill(const Kernels& kernels, const float* x, int64_t length, int64_t count, int64_t begin,
            int64_t end);

  // One tile of `width` columns, which begins at column `first`.
  void fill_tile(const Kernels& kernels, const float* rows, int64_t length, int64_t width,
                 int64_t first);

  // Columns from `first` on, where a tile begins.
  Columns view(int64_t length, int64_t count, int64_t first = 0);

 private:
  bool codes_ = false, floats_ = false;
  HugeVector<float> values_, scales_, sums16_, sums32_;
  HugeVector<int32_t> pairs_;
};

}  // namespace lockstep::exec::cpu
