// The weights of a program on the device.
#pragma once

#include <map>
#include <vector>

#include "exec/cuda/calls.h"
#include "exec/cuda/shared/memory.h"
#include "op/program.h"

namespace lockstep::exec::cuda {

class Weights {
 public:
  // Where each weight will lie. Nothing is allocated yet.
  static Weights plan(const op::Program& program);
  int64_t size_bytes() const { return layout_.bytes(); }

  // Lays the weights out anew and sends them up, chunk by chunk.
  Result<void> load();

  // The matrix of a Linear or an Embed, or those of all experts.
  WeightView matrix(const op::Weight& weight) const;
  // A norm's weight, sinks or a bias (of experts all, one after another), as floats.
  const float* vector(const op::Weight& weight) const;

  // Rows as they are on the device, decoded there: [rows, columns].
  Result<std::vector<float>> read_back(const op::Weight& weight, int64_t first, int64_t rows) const;

 private:
  struct Matrix {
    op::Weight source;
    WeightView view;         // pointers are offsets until there is memory
    int64_t planes[4] = {};  // where they start
  };
  void add_matrix(const op::Weight& weight);
  void add_vector(const op::Weight& weight);
  Result<void> send_matrix(const Matrix& matrix, class Staging& staging);

  Layout layout_;
  using Key = std::pair<const std::byte*, int64_t>;  // data in the file, rows
  static Key key(const op::Weight& weight) { return {weight.data.data(), weight.rows}; }
  std::map<Key, Matrix> matrices_;
  std::map<Key, std::pair<op::Weight, int64_t>> vectors_;  // and their places
  DeviceMemory memory_;
};

}  // namespace lockstep::exec::cuda
