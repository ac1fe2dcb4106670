// Encoders of the formats of one value and of 32 values a block.
#include <algorithm>
#include <cmath>

#include "quant/encode_block.h"
#include "quant/encode_fit.h"

namespace lockstep::quant {
namespace {

constexpr float kLargestBfloat = 0x1.fep127f;

// Four lower bits of each code, as all formats of 32 values keep them.
void pack_nibbles(const int8_t* codes, uint8_t* out) {
  for (int i = 0; i < 16; ++i)
    out[i] = static_cast<uint8_t>((codes[i] & 0xf) | (codes[i + 16] & 0xf) << 4);
}

void pack_fifth_bits(const int8_t* codes, uint8_t* out) {
  for (int byte = 0; byte < 4; ++byte) {
    int bits = 0;
    for (int i = 0; i < 8; ++i) bits |= ((codes[byte * 8 + i] >> 4) & 1) << i;
    out[byte] = static_cast<uint8_t>(bits);
  }
}

// x ~ d * (code - zero), codes 0 .. 2 zero - 1. Returns d.
uint16_t encode_scaled(const float* x, const float* weights, int zero, int8_t* codes) {
  const CodeRange range = {-zero, zero - 1};
  const Normalized norm = normalize(x, weights, 32, kLargestHalf * static_cast<float>(zero));
  uint16_t best = 0;
  float best_error = -1;
  const auto consider = [&](double scale) {
    const uint16_t d = half_scale(scale, norm.exponent);
    const Affine fit = {normalized_half(d, norm.exponent), 0};
    const float error = squared_error(norm.run(0, 32), fit, range);
    if (best_error >= 0 && error >= best_error) return;
    best = d;
    best_error = error;
  };
  if (!norm.zero) {
    consider(static_cast<double>(fit_scale(norm.run(0, 32), range, 16)));
    // Where one value towers over the rest, the error is that of d's rounding to half precision:
    // some code may have a d for it that rounds well.
    const float* largest = std::max_element(norm.values, norm.values + 32, [](float a, float b) {
      return std::fabs(a) < std::fabs(b);
    });
    for (int code = zero; code > zero / 2; --code) {
      consider(static_cast<double>(*largest) / -code);
      if (code < zero) consider(static_cast<double>(*largest) / code);
    }
  }
  choose_codes(norm.values, 32, {normalized_half(best, norm.exponent), 0}, range, codes);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<int8_t>(codes[i] + zero);
  return best;
}

// x ~ d * code + m, codes 0 .. high.
void encode_affine(const float* x, const float* weights, int high, uint16_t& d, uint16_t& m,
                   int8_t* codes) {
  const Normalized norm = normalize(x, weights, 32, kLargestHalf);
  d = m = 0;
  Affine fit = {};
  if (!norm.zero) {
    fit = fit_affine(norm.run(0, 32), high, false);
    d = half_scale(fit.scale, norm.exponent);
    fit.scale = normalized_half(d, norm.exponent);
    // The offset makes good for the rounding of the scale.
    const CodeSums sums = code_sums(norm.run(0, 32), fit, {0, high});
    m = half_scale((sums.x - static_cast<double>(fit.scale) * sums.q) / sums.one, norm.exponent);
    fit.offset = normalized_half(m, norm.exponent);
  }
  choose_codes(norm.values, 32, fit, {0, high}, codes);
}

}  // namespace

void encode_block(const float* x, const float* /*weights*/, BlockF32& out) {
  out.value = *x;
}

// The 16-bit floats saturate: a finite weight never becomes infinite.
void encode_block(const float* x, const float* /*weights*/, BlockF16& out) {
  out.bits = float_to_half(std::clamp(*x, -kLargestHalf, kLargestHalf));
}

void encode_block(const float* x, const float* /*weights*/, BlockBF16& out) {
  out.bits = float_to_bfloat(std::clamp(*x, -kLargestBfloat, kLargestBfloat));
}

void encode_block(const float* x, const float* weights, BlockQ4_0& out) {
  int8_t codes[32];
  out.d = encode_scaled(x, weights, 8, codes);
  pack_nibbles(codes, out.codes);
}

void encode_block(const float* x, const float* weights, BlockQ5_0& out) {
  int8_t codes[32];
  out.d = encode_scaled(x, weights, 16, codes);
  pack_nibbles(codes, out.codes);
  pack_fifth_bits(codes, out.high);
}

void encode_block(const float* x, const float* weights, BlockQ4_1& out) {
  int8_t codes[32];
  encode_affine(x, weights, 15, out.d, out.m, codes);
  pack_nibbles(codes, out.codes);
}

void encode_block(const float* x, const float* weights, BlockQ5_1& out) {
  int8_t codes[32];
  encode_affine(x, weights, 31, out.d, out.m, codes);
  pack_nibbles(codes, out.codes);
  pack_fifth_bits(codes, out.high);
}

// No search: with 255 levels the step that just reaches the largest value is as good as any. Code
// -128 stays unused, since kernels of other engines rely on that.
void encode_block(const float* x, const float* /*weights*/, BlockQ8_0& out) {
  const Normalized norm = normalize(x, nullptr, 32, kLargestHalf * 127);
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(norm.values[i]));
  out.d = half_scale(static_cast<double>(largest) / 127, norm.exponent);
  choose_codes(norm.values, 32, {normalized_half(out.d, norm.exponent), 0}, {-127, 127}, out.codes);
}

void encode_block(const float* x, const float* weights, BlockMXFP4& out) {
  constexpr int kLargestExponent = 252;  // with a larger one, the largest level is beyond a float
  // Between neighbouring levels of twice the 4-bit float, 0 1 2 3 4 6 8 12.
  constexpr float kBounds[] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
  out.exponent = 0;
  std::fill(std::begin(out.codes), std::end(out.codes), uint8_t{0});
  if (largest == 0) return;
  // The exponent that gives the largest value a level of 4 to 8, and its neighbours.
  const int middle = std::ilogb(largest) + 125;
  double best_error = -1;
  for (int exponent = middle - 1; exponent <= middle + 1; ++exponent) {
    const int kept = std::clamp(exponent, 0, kLargestExponent);
    int8_t codes[32];
    double error = 0;
    for (int i = 0; i < 32; ++i) {
      const double level = std::ldexp(static_cast<double>(std::fabs(x[i])), 128 - kept);
      int code = 0;
      for (const float bound : kBounds) code += level > static_cast<double>(bound) ? 1 : 0;
      const double miss = level - static_cast<double>(mxfp4_level(code));
      error += (weights != nullptr ? static_cast<double>(weights[i]) : 1.0) * miss * miss;
      codes[i] = static_cast<int8_t>(code | (x[i] < 0 ? 8 : 0));
    }
    error = std::ldexp(error, 2 * (kept - middle));
    if (best_error >= 0 && error >= best_error) continue;
    best_error = error;
    out.exponent = static_cast<uint8_t>(kept);
    pack_nibbles(codes, out.codes);
  }
}

}  // namespace lockstep::quant
