#include "exec/rope_table.h"

#include <cmath>

#include "op/rope.h"

namespace lockstep::exec {

RopeTable::RopeTable(const op::Rope& rope)
    : frequencies(op::rope_frequencies(rope)), magnitude(op::rope_magnitude(rope)) {
  for (int64_t position = 0; position < kNear; ++position)
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      near_.push_back({std::cos(angle), std::sin(angle)});
    }
  far_.resize(frequencies.size());
}

bool RopeTable::serves(const op::Rope& rope) const {
  return frequencies == op::rope_frequencies(rope) && magnitude == op::rope_magnitude(rope);
}

// A position's turn is that of the multiple of kNear before it, and then of the rest: two products
// instead of a cosine and a sine. It depends on the position alone.
void RopeTable::fill(int64_t first_position, int64_t tokens) {
  const size_t pairs = frequencies.size();
  cosines.resize(static_cast<size_t>(tokens) * pairs);
  sines.resize(cosines.size());
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t position = first_position + t, rest = position % kNear;
    if (t == 0 || rest == 0)
      for (size_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(position - rest) * frequencies[i];
        far_[i] = {std::cos(angle) * magnitude, std::sin(angle) * magnitude};
      }
    const Turn* near = near_.data() + static_cast<size_t>(rest) * pairs;
    float* cosine = cosines.data() + static_cast<size_t>(t) * pairs;
    float* sine = sines.data() + static_cast<size_t>(t) * pairs;
    for (size_t i = 0; i < pairs; ++i) {
      const Turn a = far_[i], b = near[i];
      cosine[i] = static_cast<float>(a.cosine * b.cosine - a.sine * b.sine);
      sine[i] = static_cast<float>(a.sine * b.cosine + a.cosine * b.sine);
    }
  }
}

size_t table_for(std::vector<RopeTable>& tables, const op::Rope& rope) {
  for (size_t i = 0; i < tables.size(); ++i)
    if (tables[i].serves(rope)) return i;
  tables.emplace_back(rope);
  return tables.size() - 1;
}

}  // namespace lockstep::exec
