#include "exec/cpu/expert_columns.h"

#include <algorithm>

namespace lockstep::exec::cpu {

void ExpertColumns::sort(const float* choice, int64_t tokens, int64_t used, int64_t experts) {
  segments_.clear();
  slots_.clear();
  const auto by_expert =
      op::slots_by_expert<float>({choice, static_cast<size_t>(tokens * used)}, used, experts);
  for (int64_t expert = 0; expert < experts; ++expert) {
    const auto& chosen = by_expert[static_cast<size_t>(expert)];
    if (chosen.empty()) continue;
    segments_.push_back({expert, std::ssize(slots_), std::ssize(chosen)});
    slots_.insert(slots_.end(), chosen.begin(), chosen.end());
  }
}

void ExpertColumns::fill(const Kernels& kernels, const float* x, int64_t length, int64_t stride,
                         int64_t slot_stride, int member, int members,
                         std::vector<float>& scratch) {
  int64_t tile = 0;  // of all segments
  for (const Segment& segment : segments_)
    for (int64_t first = 0; first < segment.count; first += kTile) {
      if (tile++ % members != member) continue;
      const int64_t width = std::min(kTile, segment.count - first);
      const auto row = [&](int64_t c) {
        const auto [token, slot] = this->slot(segment.first + first + c);
        return x + token * stride + slot * slot_stride;
      };
      if (width == 1) {
        columns_.fill_tile(kernels, row(0), length, 1, segment.first + first);
        continue;
      }
      scratch.resize(static_cast<size_t>(kTile * length));
      for (int64_t c = 0; c < width; ++c) std::copy_n(row(c), length, scratch.data() + c * length);
      columns_.fill_tile(kernels, scratch.data(), length, width, segment.first + first);
    }
}

}  // namespace lockstep::exec::cpu
