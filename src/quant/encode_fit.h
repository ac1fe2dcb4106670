// Least-squares fits of short runs of values by scaled whole numbers: what the encoders search
// with.
//
// Values may have weights: what a squared error of each counts. Without, all count the same.
//
// All of these work on values that were brought near one (largest magnitude in [1, 2), see
// Normalized), so that squares neither overflow nor vanish; n is 16 or 32. Results are the same on
// every machine: four fixed lanes, summed in a fixed order.
#pragma once

#include <cstdint>

namespace lockstep::quant {

inline constexpr float kLargestHalf = 65504;

// A run of values, and their weights (null: all 1).
struct Run {
  const float* x = nullptr;
  const float* weights = nullptr;
  int n = 0;
};

// Values of a block times 2^-exponent.
struct Normalized {
  float values[256];
  float weights[256];  // where `weighted`: the largest is 1, none is 0
  bool weighted = false;
  int exponent = 0;
  // All values are zero, or nearer to it than to 2^-24, the smallest step that a half scale makes;
  // they are given as zeros then.
  bool zero = false;

  Run run(int first, int n) const {
    return {values + first, weighted ? weights + first : nullptr, n};
  }
};

// Clamps to [-limit, limit] (what the format can reach) and normalizes n values. `weights` may be
// null.
Normalized normalize(const float* source, const float* weights, int n, float limit);

// The codes that a format has.
struct CodeRange {
  int low;
  int high;
};

// x ~ scale * code + offset
struct Affine {
  float scale = 0;
  float offset = 0;
};

// The best scale (of either sign) for x ~ scale * code, as far as a search over starting scales and
// alternating between codes and scale finds it. `n_starts` scales of each sign are tried.
float fit_scale(const Run& run, CodeRange codes, int n_starts);

// The best scale >= 0 and offset for codes 0..high. With `offset_below_zero`, offset <= 0.
Affine fit_affine(const Run& run, int high, bool offset_below_zero);

// Sum of squared errors with the best codes for the given scale and offset.
float squared_error(const Run& run, Affine fit, CodeRange codes);

// The best codes for the given scale and offset.
void choose_codes(const float* x, int n, Affine fit, CodeRange codes, int8_t* out);

// Weighted sums over a group of values x, with codes q, that refits of a whole block need; `one` is
// that of the weights.
struct CodeSums {
  double q = 0, qq = 0, xq = 0, x = 0, one = 0;
};
CodeSums code_sums(const Run& run, Affine fit, CodeRange codes);

// The half nearest to value * 2^exponent that is finite and, unless value is zero, not zero.
uint16_t half_scale(double value, int exponent);

// half * 2^-exponent: the scale as the decoder sees it, among normalized values.
float normalized_half(uint16_t half, int exponent);

}  // namespace lockstep::quant
