#include "parity/replay.h"

namespace lockstep::parity {

std::optional<Replay::Open> Replay::open(op::ValueId id, std::span<const int64_t> positions) {
  if (positions.empty()) return std::nullopt;
  end_ = positions.back() + 1;
  auto held = hold(id, positions);
  if (!held) return std::nullopt;
  Open out;
  out.recorded = std::move(held->actual);
  out.replayed = std::move(held->replayed.estimate.value);
  out.variance = std::move(held->replayed.estimate.variance);
  out.tainted = std::move(held->replayed.estimate.tainted);
  for (const op::ValueId input : producer_[static_cast<size_t>(id)]->inputs)
    if (const Estimated value = obtain(input, positions))
      out.inputs.push_back({input, value->value, value->variance.values.empty()});
  return out;
}

}  // namespace lockstep::parity
