// Some consecutive ops of a forward pass, by themselves: their one input comes from memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "exec/registry.h"
#include "op/program.h"
#include "quality/quality.h"

namespace lockstep::quality {

// Where a pass can be cut: before `op`, one value is all that later ops need of earlier ones.
struct Cut {
  size_t op = 0;
  op::ValueId value = -1;
};

// Between layers, and before and after all of them.
std::vector<Cut> cuts_of(const op::Program& program);

class Piece {
 public:
  // `ops` are of `whole`. Without `input` they begin at the first op, and take tokens.
  Piece(const op::Program& whole, std::vector<op::Op> ops, op::ValueId input,
        const Setting& setting);
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  // What runs the ops on these rows [tokens, width of the input]: one position each, from 0. The
  // tokens that it is given do not matter, unless there is no input.
  Result<exec::Executor*> with_input(std::span<const float> rows);

  // Whether an executor of this device reads its input anew at every run. Others copy it when they
  // are made.
  static bool reads_anew(const exec::Device& device);

 private:
  const Setting& setting_;
  std::vector<float> table_;  // [positions, width]
  op::Program program_;
  std::unique_ptr<exec::Executor> executor_;
};

}  // namespace lockstep::quality
