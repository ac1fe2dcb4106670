// Functions of 16 lanes, and the ops that work on one row. To be included after a lanes_*.h header.
#pragma once

#include <cstdint>

namespace lockstep::exec::cpu {
namespace {

// e^x = 2^n (1 + p), where n is a whole number and |p| < 0.42.
struct Power {
  F n, p;
};

LS_LANE Power f_power(F x) {
  // x = n ln 2 + r with |r| <= ln 2 / 2; a polynomial for e^r - 1.
  const F n = f_from_i(i_from_f(f_mul(x, f_set(1.44269504f))));
  F r = f_fma(n, f_set(-0.693359375f), x);
  r = f_fma(n, f_set(2.12194440e-4f), r);
  F p = f_set(1.9841270e-4f);
  p = f_fma(p, r, f_set(1.3888889e-3f));
  p = f_fma(p, r, f_set(8.3333333e-3f));
  p = f_fma(p, r, f_set(4.1666667e-2f));
  p = f_fma(p, r, f_set(1.6666667e-1f));
  p = f_fma(p, r, f_set(0.5f));
  return {n, f_fma(f_mul(r, r), p, r)};
}

// 2^n for a whole number within the range of normal numbers.
LS_LANE F f_two_to(I n) {
  return f_from_bits(i_add(i_set(0x3f800000), i_shift_left<23>(n)));
}

// e^x within about one unit in the last place; 0 far below, infinity far above, NaN for NaN.
LS_LANE F f_exp(F x) {
  // Times 2^n in two steps, so that results below the smallest normal number come out rounded, not
  // cut off. The bounds keep n in range; f_min and f_max return their second operand where the
  // first is a NaN.
  const Power power = f_power(f_max(f_set(-110.0f), f_min(f_set(89.0f), x)));
  const I whole = i_from_f(power.n);
  const I half = i_shift_right<1>(whole);
  const F sum = f_add(power.p, f_set(1));
  return f_mul(f_mul(sum, f_two_to(half)), f_two_to(i_sub(whole, half)));
}

// tanh(x) = (e^2x - 1) / (e^2x + 1), a few units in the last place at any x: e^2x - 1 is not a
// difference where it is small. Beyond the bounds tanh is 1 or -1.
LS_LANE F f_tanh(F x) {
  const F bounded = f_max(f_set(-20.0f), f_min(f_set(20.0f), x));
  const Power power = f_power(f_add(bounded, bounded));
  const F scale = f_two_to(i_from_f(power.n));
  const F less_one = f_fma(power.p, scale, f_sub(scale, f_set(1)));
  return f_div(less_one, f_add(less_one, f_set(2)));
}

// Calls body(load, store) for 16 lanes at a time, the last ones perhaps fewer.
template <class Body>
LS_LANE void each_lane(int64_t count, float* out, const Body& body) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    f_store(out + i, body([i](const float* p) { return f_load(p + i); }));
  if (const int64_t left = count - i; left > 0)
    f_store_some(out + i, body([i, left](const float* p) { return f_load_some(p + i, left); }),
                 left);
}

template <class Function>
LS_LANE void activate(const float* x, const float* other, int64_t count, float* out,
                      const Function& function) {
  each_lane(count, out, [&](const auto& load) {
    const F y = function(load(x));
    return other == nullptr ? y : f_mul(y, load(other));
  });
}

// x / (1 + e^-x)
LS_LANE F f_sigmoid_times(F x, F argument) {
  const F e = f_exp(f_sub(f_zero(), argument));
  return f_div(x, f_add(f_set(1), e));
}

void silu(const float* x, const float* other, int64_t count, float* out) {
  activate(x, other, count, out, [](F v) { return f_sigmoid_times(v, v); });
}

// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
void gelu_tanh(const float* x, const float* other, int64_t count, float* out) {
  activate(x, other, count, out, [](F v) {
    const F cubic = f_fma(f_mul(f_mul(v, v), v), f_set(0.044715f), v);
    return f_sigmoid_times(v, f_mul(cubic, f_set(1.59576912f)));
  });
}

// x / (1 + e^-1.702x) with x up to 7, times 1 + y with y between -7 and 7. f_min and f_max return
// their second operand where it is a NaN.
void clamped_swish(const float* x, const float* other, int64_t count, float* out) {
  const F limit = f_set(7), least = f_set(-7);
  each_lane(count, out, [&](const auto& load) {
    const F v = f_min(limit, load(x));
    const F y = f_sigmoid_times(v, f_mul(v, f_set(1.702f)));
    if (other == nullptr) return y;
    return f_mul(y, f_add(f_set(1), f_max(least, f_min(limit, load(other)))));
  });
}

void add(const float* x, const float* y, int64_t count, float* out) {
  each_lane(count, out, [&](const auto& load) { return f_add(load(x), load(y)); });
}

void scale(const float* x, float factor, int64_t count, float* out) {
  each_lane(count, out, [&](const auto& load) { return f_mul(load(x), f_set(factor)); });
}

// cap * tanh(x / cap)
void soft_cap(const float* x, float cap, int64_t count, float* out) {
  each_lane(count, out, [&](const auto& load) {
    return f_mul(f_set(cap), f_tanh(f_div(load(x), f_set(cap))));
  });
}

void to_half(const float* x, int64_t count, uint16_t* out) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) f_to_half(out + i, f_load(x + i));
  if (i == count) return;
  uint16_t last[16];
  f_to_half(last, f_load_some(x + i, count - i));
  for (int64_t j = i; j < count; ++j) out[j] = last[j - i];
}

// sum of term(x) over a row, in 16 lanes
template <class Term>
LS_LANE float sum_row(const float* x, int64_t count, const Term& term) {
  F sum = f_zero();
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) sum = term(f_load(x + i), sum);
  float total = 0;
  if (const int64_t left = count - i; left > 0) {
    // The lanes beyond the end must not count, whatever term(0) is.
    alignas(64) float lanes[16];
    f_store(lanes, term(f_load_some(x + i, left), f_zero()));
    for (int64_t j = 0; j < left; ++j) total += lanes[j];
  }
  return f_sum(sum) + total;
}

void rms_norm(const float* x, const float* weight, float epsilon, int64_t count, float* out) {
  const float squares = sum_row(x, count, [](F v, F sum) { return f_fma(v, v, sum); });
  const F factor = f_set(1 / __builtin_sqrtf(squares / static_cast<float>(count) + epsilon));
  each_lane(count, out,
            [&](const auto& load) { return f_mul(f_mul(load(x), factor), load(weight)); });
}

void layer_norm(const float* x, const float* weight, const float* bias, float epsilon,
                int64_t count, float* out) {
  const auto n = static_cast<float>(count);
  const F mean = f_set(sum_row(x, count, [](F v, F sum) { return f_add(v, sum); }) / n);
  const float spread = sum_row(x, count, [&](F v, F sum) {
    const F distance = f_sub(v, mean);
    return f_fma(distance, distance, sum);
  });
  const F factor = f_set(1 / __builtin_sqrtf(spread / n + epsilon));
  each_lane(count, out, [&](const auto& load) {
    const F y = f_mul(f_mul(f_sub(load(x), mean), factor), load(weight));
    return bias == nullptr ? y : f_add(y, load(bias));
  });
}

}  // namespace
}  // namespace lockstep::exec::cpu
