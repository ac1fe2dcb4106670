// Encoders of the formats of 256 values a block.
//
// Each group of 16 or 32 values is fitted alone; the block's half scale then makes whole numbers of
// the groups' scales, neighbouring whole numbers are tried against the true error, and the half
// scale is fitted again to the codes that came out.
#include <algorithm>
#include <array>
#include <cmath>

#include "quant/encode_block.h"
#include "quant/encode_fit.h"

namespace lockstep::quant {
namespace {

constexpr int kRounds = 2;  // of choosing whole-number scales and refitting the half scales

struct Scaled {
  uint16_t d = 0;
  std::array<int, 16> scales = {};
  int8_t codes[256] = {};
};

// The whole-number scale near `fit` whose best codes leave the smallest error in a group, given d.
struct ScaleChoice {
  int scale = 0;
  float error = -1;
};

ScaleChoice choose_scale(const Run& run, float fit, float d, CodeRange scale_range,
                         CodeRange codes) {
  ScaleChoice best;
  const int near = static_cast<int>(std::lround(std::clamp(fit / d, -1000.0f, 1000.0f)));
  for (int step = -1; step <= 1; ++step) {
    const int scale = std::clamp(near + step, scale_range.low, scale_range.high);
    const float error = squared_error(run, {d * static_cast<float>(scale), 0}, codes);
    if (best.error < 0 || error < best.error) best = {scale, error};
  }
  return best;
}

// 16 groups of 16: x ~ d * scale * code.
Scaled encode_scaled(const float* x, const float* weights, CodeRange scale_range, CodeRange codes,
                     int n_starts) {
  constexpr int kGroups = 16, kSize = 16;
  Scaled best;
  const float reach = static_cast<float>(codes.low * scale_range.low);
  const Normalized norm = normalize(x, weights, 256, kLargestHalf * reach);
  if (norm.zero) return best;
  float fits[kGroups];
  float outermost = 0;
  for (int g = 0; g < kGroups; ++g) {
    fits[g] = fit_scale(norm.run(g * kSize, kSize), codes, n_starts);
    if (std::fabs(fits[g]) > std::fabs(outermost)) outermost = fits[g];
  }
  double wanted = static_cast<double>(outermost) / scale_range.low;
  double best_error = -1;
  for (int round = 0; round < kRounds; ++round) {
    Scaled next;
    next.d = half_scale(wanted, norm.exponent);
    const float d = normalized_half(next.d, norm.exponent);
    double error = 0, top = 0, bottom = 0;
    for (int g = 0; g < kGroups; ++g) {
      const Run run = norm.run(g * kSize, kSize);
      const ScaleChoice choice = choose_scale(run, fits[g], d, scale_range, codes);
      const int scale = choice.scale;
      next.scales[static_cast<size_t>(g)] = scale;
      const CodeSums sums = code_sums(run, {d * static_cast<float>(scale), 0}, codes);
      top += sums.xq * scale;
      bottom += sums.qq * scale * scale;
      error += static_cast<double>(choice.error);
    }
    if (best_error >= 0 && error >= best_error) break;
    best_error = error;
    best = next;
    if (bottom == 0) break;
    wanted = top / bottom;
  }
  const float d = normalized_half(best.d, norm.exponent);
  for (int g = 0; g < kGroups; ++g) {
    const float scale = d * static_cast<float>(best.scales[static_cast<size_t>(g)]);
    choose_codes(norm.values + g * kSize, kSize, {scale, 0}, codes, best.codes + g * kSize);
  }
  return best;
}

struct ScaledWithMin {
  uint16_t d = 0;
  uint16_t d_min = 0;
  std::array<int, 16> scales = {};
  std::array<int, 16> mins = {};
  uint8_t codes[256] = {};
};

// Sums for refitting both half scales of a block: x ~ d * u - d_min * v with u = scale * code and
// v = min.
struct PairSums {
  double uu = 0, uv = 0, vv = 0, xu = 0, xv = 0;

  // False where the sums do not determine both.
  bool solve(double& d, double& d_min) const {
    const double determinant = uu * vv - uv * uv;
    if (vv == 0 && uu > 0) {
      d = xu / uu;
      return d > 0;
    }
    if (!(determinant > 1e-12 * uu * vv)) return false;
    d = (xu * vv - xv * uv) / determinant;
    d_min = (xu * uv - xv * uu) / determinant;
    return d > 0 && d_min >= 0;
  }
};

// The whole-number scale and min near `fit` whose best codes leave the smallest error in a group,
// given d and d_min.
struct PairChoice {
  int scale = 0;
  int min = 0;
  Affine fit;  // what they decode to
  float error = -1;
};

PairChoice choose_pair(const Run& run, Affine fit, float d, float d_min, int scale_high,
                       CodeRange codes) {
  const auto nearest = [&](float value, float step) {
    const float ratio = step > 0 ? value / step : 0;
    return static_cast<int>(std::lround(std::clamp(ratio, 0.0f, static_cast<float>(scale_high))));
  };
  const int near = nearest(fit.scale, d);
  const int near_min = nearest(-fit.offset, d_min);
  PairChoice best;
  for (int scale = std::max(near - 1, 0); scale <= std::min(near + 1, scale_high); ++scale) {
    for (int min = std::max(near_min - 1, 0); min <= std::min(near_min + 1, scale_high); ++min) {
      const Affine decoded = {d * static_cast<float>(scale), -d_min * static_cast<float>(min)};
      const float error = squared_error(run, decoded, codes);
      if (best.error < 0 || error < best.error) best = {scale, min, decoded, error};
    }
  }
  return best;
}

// Groups of `size`: x ~ d * scale * code - d_min * min, scales and mins 0 .. scale_high.
ScaledWithMin encode_with_min(const float* x, const float* weights, int size, int scale_high,
                              int code_high) {
  const int n_groups = 256 / size;
  const CodeRange codes = {0, code_high};
  ScaledWithMin best;
  const Normalized norm = normalize(x, weights, 256, kLargestHalf * static_cast<float>(scale_high));
  if (norm.zero) return best;
  Affine fits[16];
  double wanted = 0, wanted_min = 0;
  for (int g = 0; g < n_groups; ++g) {
    fits[g] = fit_affine(norm.run(g * size, size), code_high, true);
    wanted = std::max(wanted, static_cast<double>(fits[g].scale) / scale_high);
    wanted_min = std::max(wanted_min, static_cast<double>(-fits[g].offset) / scale_high);
  }
  double best_error = -1;
  for (int round = 0; round < kRounds; ++round) {
    ScaledWithMin next;
    next.d = half_scale(wanted, norm.exponent);
    next.d_min = half_scale(wanted_min, norm.exponent);
    const float d = normalized_half(next.d, norm.exponent);
    const float d_min = normalized_half(next.d_min, norm.exponent);
    double error = 0;
    PairSums sums;
    for (int g = 0; g < n_groups; ++g) {
      const Run run = norm.run(g * size, size);
      const PairChoice choice = choose_pair(run, fits[g], d, d_min, scale_high, codes);
      next.scales[static_cast<size_t>(g)] = choice.scale;
      next.mins[static_cast<size_t>(g)] = choice.min;
      error += static_cast<double>(choice.error);
      const CodeSums group = code_sums(run, choice.fit, codes);
      const double scale = choice.scale, min = choice.min;
      sums.uu += scale * scale * group.qq;
      sums.uv += scale * min * group.q;
      sums.vv += min * min * group.one;
      sums.xu += scale * group.xq;
      sums.xv += min * group.x;
    }
    if (best_error >= 0 && error >= best_error) break;
    best_error = error;
    best = next;
    if (!sums.solve(wanted, wanted_min)) break;
  }
  const float d = normalized_half(best.d, norm.exponent);
  const float d_min = normalized_half(best.d_min, norm.exponent);
  for (int g = 0; g < n_groups; ++g) {
    const Affine fit = {d * static_cast<float>(best.scales[static_cast<size_t>(g)]),
                        -d_min * static_cast<float>(best.mins[static_cast<size_t>(g)])};
    int8_t chosen[32];
    choose_codes(norm.values + g * size, size, fit, codes, chosen);
    std::copy_n(chosen, size, best.codes + g * size);
  }
  return best;
}

// The counterpart of two_bits() in superblocks.h. `codes` are 0..3.
void pack_two_bits(const uint8_t* codes, uint8_t* out) {
  for (int i = 0; i < 64; ++i) {
    const uint8_t* from = codes + i / 32 * 128 + i % 32;
    out[i] = static_cast<uint8_t>(from[0] | from[32] << 2 | from[64] << 4 | from[96] << 6);
  }
}

// The counterpart of six_bit_scale() and six_bit_min().
void pack_six_bits(const ScaledWithMin& block, uint8_t* out) {
  for (size_t g = 0; g < 4; ++g) {
    const int scale = block.scales[g], upper_scale = block.scales[g + 4];
    const int min = block.mins[g], upper_min = block.mins[g + 4];
    out[g] = static_cast<uint8_t>(scale | (upper_scale >> 4) << 6);
    out[g + 4] = static_cast<uint8_t>(min | (upper_min >> 4) << 6);
    out[g + 8] = static_cast<uint8_t>((upper_scale & 0xf) | (upper_min & 0xf) << 4);
  }
}

// Lower four bits of the codes of Q4_K and Q5_K.
void pack_group_nibbles(const uint8_t* codes, uint8_t* out) {
  for (int i = 0; i < 128; ++i) {
    const uint8_t* from = codes + i / 32 * 64 + i % 32;
    out[i] = static_cast<uint8_t>((from[0] & 0xf) | (from[32] & 0xf) << 4);
  }
}

}  // namespace

void encode_block(const float* x, const float* weights, BlockQ2_K& out) {
  const ScaledWithMin block = encode_with_min(x, weights, 16, 15, 3);
  out.d = block.d;
  out.d_min = block.d_min;
  for (size_t g = 0; g < 16; ++g)
    out.scales[g] = static_cast<uint8_t>(block.scales[g] | block.mins[g] << 4);
  pack_two_bits(block.codes, out.codes);
}

void encode_block(const float* x, const float* weights, BlockQ3_K& out) {
  const Scaled block = encode_scaled(x, weights, {-32, 31}, {-4, 3}, 16);
  out.d = block.d;
  std::fill(std::begin(out.scales), std::end(out.scales), uint8_t{0});
  for (size_t g = 0; g < 16; ++g) {
    const int scale = block.scales[g] + 32;
    out.scales[g % 8] = static_cast<uint8_t>(out.scales[g % 8] | (scale & 0xf) << (g / 8 * 4));
    out.scales[8 + g % 4] =
        static_cast<uint8_t>(out.scales[8 + g % 4] | (scale >> 4) << (g / 4 * 2));
  }
  std::fill(std::begin(out.high), std::end(out.high), uint8_t{0});
  uint8_t low[256];
  for (int i = 0; i < 256; ++i) {
    const int code = block.codes[i] + 4;
    low[i] = static_cast<uint8_t>(code & 3);
    out.high[i % 32] = static_cast<uint8_t>(out.high[i % 32] | (code >> 2) << (i / 32));
  }
  pack_two_bits(low, out.codes);
}

void encode_block(const float* x, const float* weights, BlockQ4_K& out) {
  const ScaledWithMin block = encode_with_min(x, weights, 32, 63, 15);
  out.d = block.d;
  out.d_min = block.d_min;
  pack_six_bits(block, out.scales);
  pack_group_nibbles(block.codes, out.codes);
}

void encode_block(const float* x, const float* weights, BlockQ5_K& out) {
  const ScaledWithMin block = encode_with_min(x, weights, 32, 63, 31);
  out.d = block.d;
  out.d_min = block.d_min;
  pack_six_bits(block, out.scales);
  pack_group_nibbles(block.codes, out.codes);
  for (int i = 0; i < 32; ++i) {
    int bits = 0;
    for (int g = 0; g < 8; ++g) bits |= (block.codes[g * 32 + i] >> 4) << g;
    out.high[i] = static_cast<uint8_t>(bits);
  }
}

void encode_block(const float* x, const float* weights, BlockQ6_K& out) {
  const Scaled block = encode_scaled(x, weights, {-128, 127}, {-32, 31}, 10);
  out.d = block.d;
  for (size_t g = 0; g < 16; ++g) out.scales[g] = static_cast<int8_t>(block.scales[g]);
  uint8_t upper[256];
  for (int i = 0; i < 256; ++i) upper[i] = static_cast<uint8_t>((block.codes[i] + 32) >> 4);
  pack_two_bits(upper, out.high);
  for (int i = 0; i < 128; ++i) {
    const int8_t* from = block.codes + i / 64 * 128 + i % 64;
    out.low[i] = static_cast<uint8_t>(((from[0] + 32) & 0xf) | ((from[64] + 32) & 0xf) << 4);
  }
}

}  // namespace lockstep::quant
