#include "doctor/recorded_rows.h"

#include <algorithm>
#include <cmath>

namespace lockstep::doctor {

double RecordedRows::largest_in(const std::string& name, int64_t position) const {
  const auto row = side_.trace->row(name, position);
  double out = 0;
  for (int64_t line = 0; row && line < row->lines; ++line)
    for (int64_t i = 0; i < row->width; ++i)
      if (const double size = std::fabs(row->at(line, i)); std::isfinite(size))
        out = std::max(out, size);
  return out;
}

bool RecordedRows::is_astray(const std::string& name, op::ValueId id, int64_t position) const {
  const double largest = largest_in(name, position);
  if (largest > 0 && largest < 1e-30) return true;
  const op::Program& program = side_.forwards.front().program;
  for (const op::Op& op : program.ops)
    if (std::ranges::find(op.outputs, id) != op.outputs.end())
      return std::ranges::any_of(op.inputs, [&](op::ValueId input) {
        const std::string& read = program.value(input).name;
        return largest_in(read, position) > 1e15 || has_non_finite(read, position);
      });
  return false;
}

bool RecordedRows::tells_type(const std::string& name, op::ValueId id, int64_t position) const {
  if (largest_in(name, position) == 0 || is_astray(name, id, position)) return false;
  const op::Program& program = side_.forwards.front().program;
  for (const op::Op& op : program.ops)
    if (std::ranges::find(op.outputs, id) != op.outputs.end())
      return std::ranges::none_of(op.inputs, [&](op::ValueId input) {
        const std::string& read = program.value(input).name;
        return side_.trace->row(read, position) && largest_in(read, position) < 1e-4;
      });
  return true;
}

bool RecordedRows::has_non_finite(const std::string& name, int64_t position) const {
  const auto row = side_.trace->row(name, position);
  if (!row || name.ends_with("attn_scores")) return false;
  std::vector<double> numbers(static_cast<size_t>(row->width));
  for (int64_t line = 0; line < row->lines; ++line) {
    row->read(line, 0, row->width, numbers.data());
    if (!std::ranges::all_of(numbers, [](double x) { return std::isfinite(x); })) return true;
  }
  return false;
}

}  // namespace lockstep::doctor
