// 16-bit codes of the columns that quantized weights are multiplied by.
// To be included after a lanes_*.h header.
#pragma once

#include "exec/cpu/kernels/kernels.h"
#include "exec/cpu/kernels/panel_format.h"

namespace lockstep::exec::cpu {
namespace {

// What the numbers of a block are multiplied by to be codes, and the scale that undoes it.
struct BlockCode {
  float inverse, scale;
  bool finite;
};

LS_LANE BlockCode block_code(const float* x, int64_t count) {
  // f_max drops a NaN in its first operand; adding zero times every number brings it back.
  F largest = f_zero(), poison = f_zero();
  for (int64_t i = 0; i < count; i += 16) {
    const F v = f_load(x + i);
    largest = f_max(f_abs(v), largest);
    poison = f_fma(v, f_zero(), poison);
  }
  const float most = f_largest(largest) + f_sum(poison);
  const bool finite = most - most == 0;
  // A block of tiny numbers, whose inverse would overflow, has a scale that rounds them to 0.
  return {finite && most > 1e-30f ? 32767 / most : 0, finite ? most / 32767 : most, finite};
}

// Codes of one tile: `pairs` [length / 2][width], `scales` [blocks][width], sums [groups][width].
void quantize_tile(const float* x, int64_t stride, int64_t width, int64_t length, int32_t* pairs,
                   float* scales, float* sums16, float* sums32) {
  // The largest numbers of a few blocks are found side by side, as each takes long to be known.
  for (int64_t first = 0; first < length; first += kBlock) {
    const int64_t count = length - first < kBlock ? length - first : kBlock;
    BlockCode of[kTile];
    for (int64_t c = 0; c < width; ++c) {
      of[c] = block_code(x + c * stride + first, count);
      scales[first / kBlock * width + c] = of[c].scale;
    }
    for (int64_t c = 0; c < width; ++c) {
      const float* column = x + c * stride + first;
      const F inverse = f_set(of[c].inverse);
      alignas(64) int16_t codes[kBlock];
      float* out16 = sums16 + first / 16 * width + c;
      float* out32 = sums32 + first / 32 * width + c;
      for (int64_t i = 0; i < count; i += 32) {
        const F low = of[c].finite ? f_load(column + i) : f_zero();
        const F high = of[c].finite ? f_load(column + i + 16) : f_zero();
        const I low_codes = i_from_f(f_mul(low, inverse));
        const I high_codes = i_from_f(f_mul(high, inverse));
        i_to_16_bits(codes + i, low_codes);
        i_to_16_bits(codes + i + 16, high_codes);
        const int32_t low_sum = i_sum(low_codes), high_sum = i_sum(high_codes);
        out16[i / 16 * width] = static_cast<float>(low_sum);
        out16[(i / 16 + 1) * width] = static_cast<float>(high_sum);
        out32[i / 32 * width] = static_cast<float>(low_sum + high_sum);
      }
      int32_t* out = pairs + first / 2 * width + c;
      for (int64_t j = 0; j < count / 2; ++j) __builtin_memcpy(out + j * width, codes + 2 * j, 4);
    }
  }
}

}  // namespace
}  // namespace lockstep::exec::cpu
