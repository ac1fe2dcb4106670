// A forward pass: a flat list of ops over named values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "op/op.h"

namespace lockstep::op {

using ValueId = int32_t;  // index into Program::values

struct Value {
  enum class Shape {
    kRows,    // [tokens, width]
    kScores,  // [width (heads), tokens, positions]
  };
  std::string name;
  int64_t width = 0;
  Shape shape = Shape::kRows;
  // Its name is one that all engines share (lockstep/detail/checkpoints.h). The others are steps
  // between them that only some architectures have, such as a fused projection before its slices.
  bool checkpoint = true;
};

struct Op {
  What what;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;  // one, but for Attention: mix, scores, probs
  int64_t layer = -1;            // -1: outside the layers
};

struct Program {
  std::vector<Value> values;
  std::vector<Op> ops;  // in order of execution; the last one computes the logits
  int64_t layers = 0;
  int64_t vocabulary = 0;
  int64_t context_length = 0;  // the KV cache's positions
  // The product with the output matrix: the logits, or what the logits are computed from row by
  // row. Its rows are needed only where somebody reads the logits. -1: the program has none.
  ValueId head = -1;

  ValueId logits() const { return ops.back().outputs.front(); }
  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
};

}  // namespace lockstep::op
