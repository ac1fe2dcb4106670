// The inputs of products with experts: those of one expert side by side, so that its weights are
// read once for all the tokens that chose it.
#pragma once

#include <span>
#include <vector>

#include "exec/cpu/columns.h"
#include "op/experts.h"

namespace lockstep::exec::cpu {

class ExpertColumns {
 public:
  // Columns that one expert multiplies.
  struct Segment {
    int64_t expert = 0;
    int64_t first = 0;  // column
    int64_t count = 0;
  };

  void set_up(bool codes, bool floats) { columns_.set_up(codes, floats); }
  void reserve(int64_t length, int64_t count) { columns_.reserve(length, count); }

  // Sorts the slots of `tokens` tokens by expert. `choice` is [tokens, used].
  void sort(const float* choice, int64_t tokens, int64_t used, int64_t experts);

  std::span<const Segment> segments() const { return segments_; }
  const op::Slot& slot(int64_t column) const { return slots_[static_cast<size_t>(column)]; }

  // What one of `members` does of filling the columns. `x` is [tokens, stride]; a slot's numbers
  // begin `slot_stride` after those of the slot before.
  void fill(const Kernels& kernels, const float* x, int64_t length, int64_t stride,
            int64_t slot_stride, int member, int members, std::vector<float>& scratch);

  Columns view(const Segment& segment, int64_t length) {
    return columns_.view(length, segment.count, segment.first);
  }

 private:
  ColumnBuffer columns_;
  std::vector<Segment> segments_;  // in order of columns
  std::vector<op::Slot> slots_;    // by column
};

}  // namespace lockstep::exec::cpu
