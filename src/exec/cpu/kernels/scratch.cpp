#include "exec/cpu/kernels/kernels.h"
#include "exec/cpu/kernels/panel_format.h"

namespace lockstep::exec::cpu {

int64_t product_scratch_bytes(int64_t columns) {
  // The larger of the two layouts: unpacked codes and scales of groups of 16, or floats.
  constexpr int64_t kRows = kPanelGroup * kPanelRows;
  constexpr int64_t kFloat = static_cast<int64_t>(sizeof(float));
  return kRows * (kBlock + kTile + columns) * kFloat;
}

int64_t attention_scratch_floats(int64_t head_size, int64_t value_size) {
  const int64_t value_width = (value_size + 15) / 16 * 16;
  constexpr int64_t kQueries = 4 * kTile;
  return kAttentionSpan * (head_size + value_width) + kQueries * (head_size + value_width + 2) +
         kTile * (kAttentionSpan + value_width);
}

}  // namespace lockstep::exec::cpu
