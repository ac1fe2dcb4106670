// Keys and values of all positions so far, of one Attention op.
#pragma once

#include "exec/cpu/kernels/kernels.h"
#include "exec/cpu/weights.h"
#include "op/op.h"

namespace lockstep::exec::cpu {

// For each key-value head: keys [positions / 16][head_size][16], so that 16 scores are computed at
// once, and values [positions][value_size rounded up to 16]. Halves or floats.
class Cache {
 public:
  static int64_t bytes(const op::Attention& attention, int64_t positions, bool half);
  static Result<Cache> create(const op::Attention& attention, int64_t positions, bool half);

  // k [kv_heads * head_size] and v [kv_heads * value_size] of one position.
  void append(const Kernels& kernels, int64_t position, const float* k, const float* v) const;

  const void* keys(int64_t head) const { return data(head * key_elements_); }
  const void* values(int64_t head) const {
    return data(kv_heads_ * key_elements_ + head * value_elements_);
  }
  bool half() const { return half_; }

 private:
  std::byte* data(int64_t element) const { return region_.data() + element * (half_ ? 2 : 4); }

  Region region_;
  bool half_ = true;
  int64_t kv_heads_ = 0, head_size_ = 0, value_size_ = 0, value_width_ = 0;
  int64_t key_elements_ = 0, value_elements_ = 0;  // of one head
};

}  // namespace lockstep::exec::cpu
