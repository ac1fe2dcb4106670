#include "exec/cuda/kv_cache.h"

namespace lockstep::exec::cuda {

KvCache KvCache::plan(const op::Program& program, bool half) {
  KvCache out;
  out.half_ = half;
  out.positions_ = program.context_length;
  Layout layout;
  const auto place = [&](int64_t rows, int64_t size) {
    Planes planes;
    planes.high = layout.place(rows * size * 2);
    if (half) return planes;
    planes.low = layout.place(rows * size * 2);
    planes.shifts = layout.place(rows);
    return planes;
  };
  for (const op::Op& op : program.ops) {
    Places places;
    if (const auto* attention = std::get_if<op::Attention>(&op.what)) {
      const int64_t rows = attention->kv_heads * program.context_length;
      places.keys = place(rows, attention->head_size);
      places.values = place(rows, attention->value_size);
    }
    out.places_.push_back(places);
  }
  out.bytes_ = layout.bytes();
  return out;
}

Result<void> KvCache::allocate() {
  LS_TRY(memory_, DeviceMemory::allocate(bytes_));
  return {};
}

Cache KvCache::of(size_t op) const {
  const auto at = [&](const Planes& planes) {
    CachePlanes out;
    out.high = memory_.as<uint16_t>(planes.high);
    if (half_) return out;
    out.low = memory_.as<uint16_t>(planes.low);
    out.shifts = memory_.as<int8_t>(planes.shifts);
    return out;
  };
  return {at(places_[op].keys), at(places_[op].values), positions_};
}

}  // namespace lockstep::exec::cuda
