#include "exec/rope_table.h"

#include <cmath>

#include "op/rope.h"

namespace lockstep::exec {

RopeTable::RopeTable(const op::Rope& rope)
    : frequencies(op::rope_frequencies(rope)), magnitude(op::rope_magnitude(rope)) {}

bool RopeTable::serves(const op::Rope& rope) const {
  return frequencies == op::rope_frequencies(rope) && magnitude == op::rope_magnitude(rope);
}

void RopeTable::fill(int64_t first_position, int64_t tokens) {
  const size_t pairs = frequencies.size();
  cosines.resize(static_cast<size_t>(tokens) * pairs);
  sines.resize(cosines.size());
  for (size_t t = 0; t < static_cast<size_t>(tokens); ++t)
    for (size_t i = 0; i < pairs; ++i) {
      const double angle =
          static_cast<double>(first_position + static_cast<int64_t>(t)) * frequencies[i];
      cosines[t * pairs + i] = static_cast<float>(std::cos(angle) * magnitude);
      sines[t * pairs + i] = static_cast<float>(std::sin(angle) * magnitude);
    }
}

size_t table_for(std::vector<RopeTable>& tables, const op::Rope& rope) {
  for (size_t i = 0; i < tables.size(); ++i)
    if (tables[i].serves(rope)) return i;
  tables.emplace_back(rope);
  return tables.size() - 1;
}

}  // namespace lockstep::exec
