// Sixteen lanes in plain arrays, for machines without the instructions of the other headers; see
// lanes_avx512.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/float16.h"

#define LS_LANE static inline

namespace lockstep::exec::cpu {
namespace {

struct F {
  float v[16];
};
struct I {
  uint32_t v[16];
};

#define LS_EACH for (int i = 0; i < 16; ++i)

LS_LANE F f_set(float x) {
  F out;
  LS_EACH out.v[i] = x;
  return out;
}
LS_LANE F f_zero() {
  return f_set(0);
}
LS_LANE F f_load(const float* p) {
  F out;
  std::memcpy(out.v, p, sizeof out.v);
  return out;
}
LS_LANE void f_store(float* p, F x) {
  std::memcpy(p, x.v, sizeof x.v);
}
LS_LANE F f_load_some(const float* p, int64_t count) {
  F out = f_zero();
  for (int64_t i = 0; i < count; ++i) out.v[i] = p[i];
  return out;
}
LS_LANE void f_store_some(float* p, F x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) p[i] = x.v[i];
}
LS_LANE F f_add(F a, F b) {
  LS_EACH a.v[i] += b.v[i];
  return a;
}
LS_LANE F f_sub(F a, F b) {
  LS_EACH a.v[i] -= b.v[i];
  return a;
}
LS_LANE F f_mul(F a, F b) {
  LS_EACH a.v[i] *= b.v[i];
  return a;
}
LS_LANE F f_div(F a, F b) {
  LS_EACH a.v[i] /= b.v[i];
  return a;
}
LS_LANE F f_fma(F a, F b, F c) {
  LS_EACH c.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
  return c;
}
LS_LANE F f_max(F a, F b) {
  LS_EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
LS_LANE F f_min(F a, F b) {
  LS_EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}
LS_LANE F f_abs(F a) {
  LS_EACH a.v[i] = std::fabs(a.v[i]);
  return a;
}
LS_LANE float f_sum(F x) {
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x.v[i] += x.v[i + width];
  return x.v[0];
}
LS_LANE float f_largest(F x) {
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x.v[i] = x.v[i] > x.v[i + width] ? x.v[i] : x.v[i + width];
  return x.v[0];
}
LS_LANE F f_from_half(const uint16_t* p) {
  F out;
  LS_EACH out.v[i] = lockstep::half_to_float(p[i]);
  return out;
}
LS_LANE void f_to_half(uint16_t* p, F x) {
  LS_EACH p[i] = lockstep::float_to_half(x.v[i]);
}
LS_LANE F f_from_bfloat(const uint16_t* p) {
  F out;
  LS_EACH out.v[i] = lockstep::bfloat_to_float(p[i]);
  return out;
}
LS_LANE I i_from_u8(const uint8_t* p) {
  I out;
  LS_EACH out.v[i] = p[i];
  return out;
}
LS_LANE F f_from_i8(const int8_t* p) {
  F out;
  LS_EACH out.v[i] = static_cast<float>(p[i]);
  return out;
}
LS_LANE F f_from_i(I a) {
  F out;
  LS_EACH out.v[i] = static_cast<float>(static_cast<int32_t>(a.v[i]));
  return out;
}
LS_LANE I i_from_f(F a) {
  I out;
  // What does not fit (or is a NaN) becomes the smallest number, as the instructions have it.
  LS_EACH out.v[i] = a.v[i] >= -2147483648.0f && a.v[i] < 2147483648.0f
                         ? static_cast<uint32_t>(static_cast<int32_t>(std::nearbyint(a.v[i])))
                         : 0x80000000u;
  return out;
}
LS_LANE F f_from_bits(I a) {
  F out;
  std::memcpy(out.v, a.v, sizeof out.v);
  return out;
}
LS_LANE I i_bits(F a) {
  I out;
  std::memcpy(out.v, a.v, sizeof out.v);
  return out;
}

LS_LANE I i_set(int32_t x) {
  I out;
  LS_EACH out.v[i] = static_cast<uint32_t>(x);
  return out;
}
LS_LANE I i_zero() {
  return i_set(0);
}
LS_LANE I i_load(const void* p) {
  I out;
  std::memcpy(out.v, p, sizeof out.v);
  return out;
}
LS_LANE void i_store(void* p, I x) {
  std::memcpy(p, x.v, sizeof x.v);
}
LS_LANE I i_add(I a, I b) {
  LS_EACH a.v[i] += b.v[i];
  return a;
}
LS_LANE int32_t i_sum(I a) {
  uint32_t sum = 0;
  LS_EACH sum += a.v[i];
  return static_cast<int32_t>(sum);
}
LS_LANE void i_to_16_bits(int16_t* p, I x) {
  LS_EACH p[i] = static_cast<int16_t>(x.v[i]);
}
LS_LANE I i_sub(I a, I b) {
  LS_EACH a.v[i] -= b.v[i];
  return a;
}
LS_LANE I i_and(I a, I b) {
  LS_EACH a.v[i] &= b.v[i];
  return a;
}
LS_LANE I i_or(I a, I b) {
  LS_EACH a.v[i] |= b.v[i];
  return a;
}
template <int N>
LS_LANE I i_shift_left(I a) {
  LS_EACH a.v[i] <<= N;
  return a;
}
template <int N>
LS_LANE I i_shift_right(I a) {
  LS_EACH a.v[i] = static_cast<uint32_t>(static_cast<int32_t>(a.v[i]) >> N);
  return a;
}
LS_LANE uint32_t pair_of(uint32_t low, uint32_t high) {
  return (low & 0xffffu) | (high << 16);
}
LS_LANE int32_t low_half(uint32_t pair) {
  return static_cast<int16_t>(pair);
}
LS_LANE int32_t high_half(uint32_t pair) {
  return static_cast<int32_t>(pair) >> 16;
}
template <int N>
LS_LANE I i_shift16(I a) {
  LS_EACH {
    const uint32_t low = a.v[i] & 0xffffu, high = a.v[i] >> 16;
    if constexpr (N > 0) a.v[i] = pair_of(low >> N, high >> N);
    if constexpr (N < 0) a.v[i] = pair_of(low << -N, high << -N);
  }
  return a;
}
template <int N>
LS_LANE I i_shift16_signed(I a) {
  LS_EACH a.v[i] = pair_of(static_cast<uint32_t>(low_half(a.v[i]) >> N),
                           static_cast<uint32_t>(high_half(a.v[i]) >> N));
  return a;
}
struct Table {
  int8_t v[16];
};
LS_LANE Table table_of(const int8_t* levels) {
  Table out;
  std::memcpy(out.v, levels, sizeof out.v);
  return out;
}
template <int Number>
LS_LANE I i_level(Table table, I halves) {
  LS_EACH halves.v[i] =
      pair_of(static_cast<uint32_t>(table.v[(halves.v[i] >> (4 * Number)) & 15]),
              static_cast<uint32_t>(table.v[(halves.v[i] >> (4 * Number + 16)) & 15]));
  return halves;
}
LS_LANE I i_dot(I sum, I a, I b) {
  LS_EACH sum.v[i] += static_cast<uint32_t>(low_half(a.v[i]) * low_half(b.v[i])) +
                      static_cast<uint32_t>(high_half(a.v[i]) * high_half(b.v[i]));
  return sum;
}

#undef LS_EACH

constexpr int kIntPanels = 1, kIntColumns = 2;
constexpr int kFloatPanels = 1, kFloatColumns = 2;
constexpr int kFewColumns = 1;  // up to so many without unpacking weights first
constexpr int kStreams = 1;

}  // namespace
}  // namespace lockstep::exec::cpu
