#include "quant/encode_fit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"

namespace lockstep::quant {
namespace {

// Four lanes: every machine has them, so results do not depend on what else it has.
using Lanes = float __attribute__((vector_size(16)));

Lanes load(const float* x) {
  Lanes lanes;
  std::memcpy(&lanes, x, sizeof lanes);
  return lanes;
}

double sum(Lanes lanes) {
  return static_cast<double>(lanes[0] + lanes[1]) + static_cast<double>(lanes[2] + lanes[3]);
}

// Scales below this are as good as zero among normalized values; their inverses would overflow.
constexpr float kTiny = 1e-30f;

float inverse(float scale) {
  return std::fabs(scale) < kTiny ? 0 : 1 / scale;
}

// Codes of four values: nearest whole numbers within the range. The sum with 1.5 * 2^23 leaves no
// bits for a fraction, which rounds; |v| is small by then.
Lanes nearest(Lanes v, float low, float high) {
  constexpr float kRounder = 12582912.0f;
  const Lanes lows = {low, low, low, low};
  const Lanes highs = {high, high, high, high};
  v = v < lows ? lows : v;
  v = v > highs ? highs : v;
  return (v + kRounder) - kRounder;
}

struct ScaleSums {
  double qq, xq;

  double gain() const { return qq > 0 ? xq * xq / qq : 0; }  // how much of sum(x^2) is explained
  float scale() const { return qq > 0 ? static_cast<float>(xq / qq) : 0; }
};

// Of four values, times their weights where there are any.
template <bool kWeighted>
Lanes weighed(const Run& run, int i, Lanes number) {
  if constexpr (kWeighted) return number * load(run.weights + i);
  return number;
}

template <bool kWeighted>
ScaleSums sum_scale(const Run& run, float inverse_scale, CodeRange codes) {
  const float low = static_cast<float>(codes.low), high = static_cast<float>(codes.high);
  Lanes qq = {}, xq = {};
  for (int i = 0; i < run.n; i += 4) {
    const Lanes v = load(run.x + i);
    const Lanes q = nearest(v * inverse_scale, low, high);
    const Lanes weighed_q = weighed<kWeighted>(run, i, q);
    qq += weighed_q * q;
    xq += weighed_q * v;
  }
  return {sum(qq), sum(xq)};
}

ScaleSums scale_sums(const Run& run, float inverse_scale, CodeRange codes) {
  return run.weights != nullptr ? sum_scale<true>(run, inverse_scale, codes)
                                : sum_scale<false>(run, inverse_scale, codes);
}

template <bool kWeighted>
CodeSums sum_codes(const Run& run, Affine fit, CodeRange codes) {
  const float low = static_cast<float>(codes.low), high = static_cast<float>(codes.high);
  const float inverse_scale = inverse(fit.scale);
  Lanes q_sum = {}, qq = {}, xq = {}, x_sum = {}, ones = {};
  for (int i = 0; i < run.n; i += 4) {
    const Lanes v = load(run.x + i);
    const Lanes q = nearest((v - fit.offset) * inverse_scale, low, high);
    const Lanes weighed_q = weighed<kWeighted>(run, i, q);
    q_sum += weighed_q;
    qq += weighed_q * q;
    xq += weighed_q * v;
    x_sum += weighed<kWeighted>(run, i, v);
    if constexpr (kWeighted) ones += load(run.weights + i);
  }
  return {sum(q_sum), sum(qq), sum(xq), sum(x_sum),
          kWeighted ? sum(ones) : static_cast<double>(run.n)};
}

template <bool kWeighted>
float sum_errors(const Run& run, Affine fit, CodeRange codes) {
  const float low = static_cast<float>(codes.low), high = static_cast<float>(codes.high);
  const float inverse_scale = inverse(fit.scale);
  Lanes total = {};
  for (int i = 0; i < run.n; i += 4) {
    const Lanes v = load(run.x + i) - fit.offset;
    const Lanes error = v - nearest(v * inverse_scale, low, high) * fit.scale;
    total += weighed<kWeighted>(run, i, error) * error;
  }
  return static_cast<float>(sum(total));
}

// Best offset and scale for the codes that were chosen, and the squared error they leave, less the
// constant sum(x^2).
struct AffineFit {
  Affine fit;
  double error;
};

AffineFit solve_affine(const CodeSums& s, bool offset_below_zero) {
  const double n = s.one;
  const double determinant = n * s.qq - s.q * s.q;
  double scale = 0, offset = s.x / n;
  if (determinant > 0) {
    scale = (n * s.xq - s.x * s.q) / determinant;
    offset = (s.x - scale * s.q) / n;
  }
  if (offset_below_zero && offset > 0) {
    offset = 0;
    scale = s.qq > 0 ? s.xq / s.qq : 0;
  }
  const double error = scale * scale * s.qq + n * offset * offset - 2 * scale * s.xq -
                       2 * offset * s.x + 2 * scale * offset * s.q;
  return {{static_cast<float>(scale), static_cast<float>(offset)}, error};
}

}  // namespace

Normalized normalize(const float* source, const float* weights, int n, float limit) {
  Normalized result;
  if (weights != nullptr) {
    // Inputs that were never seen count a little: their weights must not become anything.
    constexpr float kLeast = 1e-6f;
    const float most = *std::max_element(weights, weights + n);
    result.weighted = most > 0;
    for (int i = 0; i < n && result.weighted; ++i)
      result.weights[i] = std::max(weights[i] / most, kLeast);
  }
  float largest = 0;
  for (int i = 0; i < n; ++i) {
    result.values[i] = std::clamp(source[i], -limit, limit);
    largest = std::max(largest, std::fabs(result.values[i]));
  }
  result.zero = largest <= 0x1p-25f;
  if (result.zero) {
    std::fill_n(result.values, n, 0.0f);
    return result;
  }
  result.exponent = std::ilogb(largest);
  const float factor = std::ldexp(1.0f, -result.exponent);
  for (int i = 0; i < n; ++i) result.values[i] *= factor;
  return result;
}

float fit_scale(const Run& run, CodeRange codes, int n_starts) {
  float largest = 0;
  for (int i = 0; i < run.n; ++i) largest = std::max(largest, std::fabs(run.x[i]));
  if (largest < kTiny) return 0;
  // The largest value is given code `top`: from just outside the range down to where it would
  // waste a third of it.
  const float outermost = static_cast<float>(std::max(-codes.low, codes.high));
  ScaleSums best = {0, 0};
  for (int i = 0; i < n_starts; ++i) {
    const float top =
        outermost * (1.06f - 0.42f * static_cast<float>(i) / static_cast<float>(n_starts));
    for (const float sign : {1.0f, -1.0f}) {
      const ScaleSums sums = scale_sums(run, sign * top / largest, codes);
      if (sums.gain() > best.gain()) best = sums;
    }
  }
  for (int i = 0; i < 3; ++i) {
    const ScaleSums next = scale_sums(run, inverse(best.scale()), codes);
    if (!(next.gain() > best.gain())) break;
    best = next;
  }
  return best.scale();
}

Affine fit_affine(const Run& run, int high, bool offset_below_zero) {
  const CodeRange codes = {0, high};
  float smallest = run.x[0], largest = run.x[0];
  for (int i = 1; i < run.n; ++i) {
    smallest = std::min(smallest, run.x[i]);
    largest = std::max(largest, run.x[i]);
  }
  if (offset_below_zero) smallest = std::min(smallest, 0.0f);
  const float range = largest - smallest;
  if (range < kTiny) return {0, smallest};
  // Ranges that leave some of either end out are worth it for the finer steps inside.
  constexpr float kCuts[] = {-0.01f, 0.02f, 0.05f, 0.09f};
  AffineFit best = {{}, 0};
  bool first = true;
  for (const float below : kCuts) {
    for (const float above : kCuts) {
      const Affine start = {range * (1 - below - above) / static_cast<float>(high),
                            smallest + range * below};
      const AffineFit next = solve_affine(code_sums(run, start, codes), offset_below_zero);
      if (first || next.error < best.error) best = next;
      first = false;
    }
  }
  for (int i = 0; i < 3; ++i) {
    const AffineFit next = solve_affine(code_sums(run, best.fit, codes), offset_below_zero);
    if (!(next.error < best.error)) break;
    best = next;
  }
  return best.fit;
}

float squared_error(const Run& run, Affine fit, CodeRange codes) {
  return run.weights != nullptr ? sum_errors<true>(run, fit, codes)
                                : sum_errors<false>(run, fit, codes);
}

void choose_codes(const float* x, int n, Affine fit, CodeRange codes, int8_t* out) {
  const float low = static_cast<float>(codes.low), high = static_cast<float>(codes.high);
  const float inverse_scale = inverse(fit.scale);
  for (int i = 0; i < n; i += 4) {
    const Lanes q = nearest((load(x + i) - fit.offset) * inverse_scale, low, high);
    for (int j = 0; j < 4; ++j) out[i + j] = static_cast<int8_t>(q[j]);
  }
}

CodeSums code_sums(const Run& run, Affine fit, CodeRange codes) {
  return run.weights != nullptr ? sum_codes<true>(run, fit, codes)
                                : sum_codes<false>(run, fit, codes);
}

uint16_t half_scale(double value, int exponent) {
  if (value == 0) return 0;
  const double real = std::clamp(std::ldexp(value, exponent), -65504.0, 65504.0);
  const uint16_t half = float_to_half(static_cast<float>(real));
  const bool vanished = (half & 0x7fff) == 0;
  return vanished ? static_cast<uint16_t>(half | 1) : half;
}

float normalized_half(uint16_t half, int exponent) {
  return static_cast<float>(std::ldexp(static_cast<double>(half_to_float(half)), -exponent));
}

}  // namespace lockstep::quant
