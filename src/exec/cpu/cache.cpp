#include "exec/cpu/cache.h"

#include <cstring>
#include <vector>

namespace lockstep::exec::cpu {
namespace {

constexpr int64_t kLanes = 16;

int64_t rounded_up(int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

template <class T>
void place_key(const T* key, int64_t head_size, int64_t position, std::byte* keys) {
  std::byte* out =
      keys + (position / kLanes * head_size * kLanes + position % kLanes) * int64_t{sizeof(T)};
  for (int64_t d = 0; d < head_size; ++d)
    std::memcpy(out + d * kLanes * int64_t{sizeof(T)}, key + d, sizeof(T));
}

}  // namespace

int64_t Cache::bytes(const op::Attention& attention, int64_t positions, bool half) {
  return attention.kv_heads * rounded_up(positions) *
         (attention.head_size + rounded_up(attention.value_size)) * (half ? 2 : 4);
}

Result<Cache> Cache::create(const op::Attention& attention, int64_t positions, bool half) {
  Cache out;
  LS_TRY(out.region_, Region::allocate(bytes(attention, positions, half)));
  out.half_ = half;
  out.kv_heads_ = attention.kv_heads;
  out.head_size_ = attention.head_size;
  out.value_size_ = attention.value_size;
  out.value_width_ = rounded_up(attention.value_size);
  out.key_elements_ = rounded_up(positions) * attention.head_size;
  out.value_elements_ = rounded_up(positions) * out.value_width_;
  return out;
}

void Cache::append(const Kernels& kernels, int64_t position, const float* k, const float* v) const {
  std::vector<uint16_t> halves;
  if (half_) halves.resize(static_cast<size_t>(std::max(head_size_, value_size_)));
  for (int64_t head = 0; head < kv_heads_; ++head) {
    const float* key = k + head * head_size_;
    const float* value = v + head * value_size_;
    std::byte* keys = data(head * key_elements_);
    std::byte* row =
        data(kv_heads_ * key_elements_ + head * value_elements_ + position * value_width_);
    if (!half_) {
      place_key(key, head_size_, position, keys);
      std::memcpy(row, value, static_cast<size_t>(value_size_) * 4);
      continue;
    }
    kernels.to_half(key, head_size_, halves.data());
    place_key(halves.data(), head_size_, position, keys);
    kernels.to_half(value, value_size_, halves.data());
    std::memcpy(row, halves.data(), static_cast<size_t>(value_size_) * 2);
  }
}

}  // namespace lockstep::exec::cpu
