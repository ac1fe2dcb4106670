// The weights of a program's ops, and programs that take some of them from another file.
#pragma once

#include <string>
#include <vector>

#include "op/program.h"

namespace lockstep::quality {

// In a fixed order: two programs of the same shape have theirs in the same places.
std::vector<op::Weight*> weights_of(op::What& what);
std::vector<const op::Weight*> weights_of(const op::What& what);

// A tensor that ops take, and which ops: more than one where an embedding is the output matrix too.
struct Tensor {
  const op::Weight* reference = nullptr;
  const op::Weight* suspect = nullptr;
  std::vector<size_t> ops;

  const std::string& name() const { return suspect->name; }
  bool equal() const;  // format and bytes
};

// In the order of their first use. The programs have the same shape.
std::vector<Tensor> tensors_of(const op::Program& reference, const op::Program& suspect);

// What keeps the programs from having the same shape; empty: nothing.
std::string shape_difference(const op::Program& reference, const op::Program& suspect);

// Ops [begin, end) of `program`, those of a tensor with the weights that `other` has there.
std::vector<op::Op> with_weights_of(const op::Program& program, const op::Program& other,
                                    const Tensor& tensor, size_t begin, size_t end);

}  // namespace lockstep::quality
