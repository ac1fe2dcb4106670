// A block of a quantized format taken apart, so that one part can be read otherwise:
//   value i = d * scale * level(code i) - d_min * min,
// with the scale and the min of the group that i belongs to. Level(q) is q - offset, or the entry
// of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "op/op.h"
#include "quant/blocks.h"

namespace lockstep::doctor {

struct Parts {
  int values = 0;
  int group = 0;  // values that share a scale
  float d = 0;
  float d_min = 0;
  int scales[16] = {};
  int mins[16] = {};
  int codes[256] = {};  // unsigned, but for Q8_0
  int offset = 0;
  const int8_t* levels = nullptr;  // [16]; null: none

  int groups() const { return values / group; }
};

// A block in a weight.
struct Place {
  const op::Weight& weight;
  int64_t row = 0;
  int64_t block = 0;  // in its row

  // `other`: so many blocks further on; at the ends of the tensor the block itself.
  template <class Block>
  Block read(int64_t other = 0) const {
    const auto size = static_cast<int64_t>(sizeof(Block));
    const int64_t here = row * (weight.columns / Block::kValues) + block;
    const int64_t there = here + other;
    const bool inside = there >= 0 && (there + 1) * size <= std::ssize(weight.data);
    Block out;
    std::memcpy(&out, weight.data.data() + (inside ? there : here) * size, sizeof out);
    return out;
  }
};

inline constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kMxfp4Levels[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// As the format defines it.
Parts parts_of(const quant::BlockQ4_0& block);
Parts parts_of(const quant::BlockQ4_1& block);
Parts parts_of(const quant::BlockQ5_0& block);
Parts parts_of(const quant::BlockQ5_1& block);
Parts parts_of(const quant::BlockQ8_0& block);
Parts parts_of(const quant::BlockIQ4_NL& block);
Parts parts_of(const quant::BlockMXFP4& block);
Parts parts_of(const quant::BlockQ2_K& block);
Parts parts_of(const quant::BlockQ3_K& block);
Parts parts_of(const quant::BlockQ4_K& block);
Parts parts_of(const quant::BlockQ5_K& block);
Parts parts_of(const quant::BlockQ6_K& block);
Parts parts_of(const quant::BlockIQ4_XS& block);

// The values that the parts stand for.
void assemble(const Parts& parts, float* out);

}  // namespace lockstep::doctor
