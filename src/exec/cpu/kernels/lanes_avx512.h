// Sixteen lanes in one AVX-512 register. The three lanes_*.h headers offer the same types and
// functions, and their results are the same bit for bit: what is built on them computes alike on
// every machine.
//
// Everything that is compiled for one kind of machine lies in unnamed namespaces and includes no
// header with inline functions of ours: of functions with external linkage the linker keeps any
// copy, perhaps one that this machine cannot run.
#pragma once

#include <cstdint>

#include <immintrin.h>

// GCC 12 warns about the undefined registers inside its own intrinsics.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define LS_LANE static inline __attribute__((always_inline))

namespace lockstep::exec::cpu {
namespace {

struct F {  // 16 floats
  __m512 v;
};
struct I {  // 16 whole numbers of 32 bits, or 16 pairs of 16 bits
  __m512i v;
};

LS_LANE F f_zero() {
  return {_mm512_setzero_ps()};
}
LS_LANE F f_set(float x) {
  return {_mm512_set1_ps(x)};
}
LS_LANE F f_load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
LS_LANE void f_store(float* p, F x) {
  _mm512_storeu_ps(p, x.v);
}
// The first `count` lanes; the others are zero.
LS_LANE F f_load_some(const float* p, int64_t count) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p)};
}
LS_LANE void f_store_some(float* p, F x, int64_t count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), x.v);
}
LS_LANE F f_add(F a, F b) {
  return {_mm512_add_ps(a.v, b.v)};
}
LS_LANE F f_sub(F a, F b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
LS_LANE F f_mul(F a, F b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
LS_LANE F f_div(F a, F b) {
  return {_mm512_div_ps(a.v, b.v)};
}
// a * b + c, rounded once
LS_LANE F f_fma(F a, F b, F c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
// a where a > b, else b: b where either is a NaN
LS_LANE F f_max(F a, F b) {
  return {_mm512_max_ps(a.v, b.v)};
}
LS_LANE F f_min(F a, F b) {
  return {_mm512_min_ps(a.v, b.v)};
}
LS_LANE F f_abs(F a) {
  return {_mm512_abs_ps(a.v)};
}
// The upper eight lanes onto the lower eight: lane i of the result is a[i] and a[i + 8].
LS_LANE float f_sum(F a) {
  alignas(64) float x[16];
  f_store(x, a);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x[i] += x[i + width];
  return x[0];
}
LS_LANE float f_largest(F a) {
  alignas(64) float x[16];
  f_store(x, a);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x[i] = x[i] > x[i + width] ? x[i] : x[i + width];
  return x[0];
}
LS_LANE F f_from_half(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
LS_LANE void f_to_half(uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
LS_LANE F f_from_bfloat(const uint16_t* p) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
LS_LANE I i_from_u8(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
LS_LANE F f_from_i8(const int8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
LS_LANE F f_from_i(I a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
LS_LANE I i_from_f(F a) {  // to nearest, ties to even
  return {_mm512_cvtps_epi32(a.v)};
}
LS_LANE F f_from_bits(I a) {
  return {_mm512_castsi512_ps(a.v)};
}
LS_LANE I i_bits(F a) {
  return {_mm512_castps_si512(a.v)};
}

LS_LANE I i_zero() {
  return {_mm512_setzero_si512()};
}
LS_LANE I i_set(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
LS_LANE I i_load(const void* p) {
  return {_mm512_loadu_si512(p)};
}
LS_LANE void i_store(void* p, I x) {
  _mm512_storeu_si512(p, x.v);
}
LS_LANE I i_add(I a, I b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
LS_LANE int32_t i_sum(I a) {
  return _mm512_reduce_add_epi32(a.v);
}
// Numbers that fit, as 16 numbers of 16 bits.
LS_LANE void i_to_16_bits(int16_t* p, I x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x.v));
}
LS_LANE I i_sub(I a, I b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
LS_LANE I i_and(I a, I b) {
  return {_mm512_and_si512(a.v, b.v)};
}
LS_LANE I i_or(I a, I b) {
  return {_mm512_or_si512(a.v, b.v)};
}
template <int N>
LS_LANE I i_shift_left(I a) {
  return {_mm512_slli_epi32(a.v, N)};
}
template <int N>
LS_LANE I i_shift_right(I a) {  // arithmetic
  return {_mm512_srai_epi32(a.v, N)};
}
// Each 16-bit half on its own: to the right by N, to the left where N is negative, then the sign.
template <int N>
LS_LANE I i_shift16(I a) {
  if constexpr (N > 0) return {_mm512_srli_epi16(a.v, N)};
  if constexpr (N < 0) return {_mm512_slli_epi16(a.v, -N)};
  return a;
}
template <int N>
LS_LANE I i_shift16_signed(I a) {
  return {_mm512_srai_epi16(a.v, N)};
}
// A table of 16 levels. Each half has four numbers of four bits, the lowest first; the level of
// one.
struct Table {
  __m512i v;  // twice
};
LS_LANE Table table_of(const int8_t* levels) {
  return {_mm512_cvtepi8_epi16(
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels))))};
}
template <int Number>
LS_LANE I i_level(Table table, I halves) {
  return {_mm512_permutexvar_epi16(i_shift16<4 * Number>(halves).v, table.v)};
}
// sum + a.low * b.low + a.high * b.high in every lane, halves being signed. As a statement of its
// own: of the intrinsics the compiler copies every sum before and after, and begins many products
// before it adds up the first.
LS_LANE I i_dot(I sum, I a, I b) {
#ifdef __AVX512VNNI__
  asm("vpdpwssd %2, %1, %0" : "+v"(sum.v) : "v"(a.v), "v"(b.v));
#else
  __m512i products;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
      : "+v"(sum.v), "=&v"(products)
      : "v"(a.v), "v"(b.v));
#endif
  return sum;
}

// Tile sizes that fit 32 registers: panels and columns at once.
constexpr int kIntPanels = 2, kIntColumns = 6;
constexpr int kFloatPanels = 2, kFloatColumns = 12;
constexpr int kFewColumns = 8;  // up to so many without unpacking weights first
constexpr int kStreams = 2;     // panels at once in generation

}  // namespace
}  // namespace lockstep::exec::cpu
