// What the rows that a side recorded tell by themselves.
#pragma once

#include <string>

#include "parity/scope.h"

namespace lockstep::doctor {

class RecordedRows {
 public:
  explicit RecordedRows(const parity::SideScope& side) : side_(side) {}

  bool has_non_finite(const std::string& name, int64_t position) const;
  // Numbers that single precision has no room for: squares of inputs beyond it, or results below;
  // and what is made of NaN or infinity.
  bool is_astray(const std::string& name, op::ValueId id, int64_t position) const;
  // Rows of zeros tell nothing of a type, nor do inputs that 8-bit types take for zero.
  bool tells_type(const std::string& name, op::ValueId id, int64_t position) const;

 private:
  double largest_in(const std::string& name, int64_t position) const;

  const parity::SideScope& side_;
};

}  // namespace lockstep::doctor
