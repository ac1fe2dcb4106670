// The rotations of a Rope op, as numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "op/op.h"

namespace lockstep::exec {

// Cosines and sines of a step's positions: [tokens][pairs], times the rotation's magnitude.
struct RopeTable {
  std::vector<double> frequencies;
  double magnitude = 1;
  std::vector<float> cosines, sines;

  explicit RopeTable(const op::Rope& rope);
  bool serves(const op::Rope& rope) const;
  void fill(int64_t first_position, int64_t tokens);

 private:
  struct Turn {
    double cosine, sine;
  };
  static constexpr int64_t kNear = 64;
  std::vector<Turn> near_;  // of the first positions: [kNear][pairs]
  std::vector<Turn> far_;   // of a multiple of kNear: [pairs]
};

// The place in `tables` of the one for `rope`, which is added where there is none.
size_t table_for(std::vector<RopeTable>& tables, const op::Rope& rope);

}  // namespace lockstep::exec
