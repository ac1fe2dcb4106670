// Sixteen lanes in two AVX2 registers; see lanes_avx512.h.
#pragma once

#include <cstdint>

#include <immintrin.h>

#define LS_LANE static inline __attribute__((always_inline))

namespace lockstep::exec::cpu {
namespace {

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};

LS_LANE __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
LS_LANE __m128i load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

LS_LANE F f_zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
LS_LANE F f_set(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
LS_LANE F f_load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
LS_LANE void f_store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
LS_LANE F f_load_some(const float* p, int64_t count) {
  alignas(32) float x[16] = {};
  for (int64_t i = 0; i < count; ++i) x[i] = p[i];
  return f_load(x);
}
LS_LANE void f_store_some(float* p, F x, int64_t count) {
  alignas(32) float y[16];
  f_store(y, x);
  for (int64_t i = 0; i < count; ++i) p[i] = y[i];
}
LS_LANE F f_add(F x, F y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
LS_LANE F f_sub(F x, F y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
LS_LANE F f_mul(F x, F y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
LS_LANE F f_div(F x, F y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
LS_LANE F f_fma(F x, F y, F z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
LS_LANE F f_max(F x, F y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
LS_LANE F f_min(F x, F y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
LS_LANE F f_abs(F x) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
LS_LANE float f_sum(F a) {
  alignas(32) float x[16];
  f_store(x, a);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x[i] += x[i + width];
  return x[0];
}
LS_LANE float f_largest(F a) {
  alignas(32) float x[16];
  f_store(x, a);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) x[i] = x[i] > x[i + width] ? x[i] : x[i + width];
  return x[0];
}
LS_LANE F f_from_half(const uint16_t* p) {
  return {_mm256_cvtph_ps(load128(p)), _mm256_cvtph_ps(load128(p + 8))};
}
LS_LANE void f_to_half(uint16_t* p, F x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, kNearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, kNearest));
}
LS_LANE F f_from_bfloat(const uint16_t* p) {
  return {
      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16)),
      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p + 8)), 16)),
  };
}
LS_LANE I i_from_u8(const uint8_t* p) {
  const __m128i bytes = load128(p);
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
LS_LANE F f_from_i8(const int8_t* p) {
  const __m128i bytes = load128(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
LS_LANE F f_from_i(I x) {
  return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
LS_LANE I i_from_f(F x) {
  return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}
LS_LANE F f_from_bits(I x) {
  return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
LS_LANE I i_bits(F x) {
  return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}

LS_LANE I i_zero() {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
LS_LANE I i_set(int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
LS_LANE I i_load(const void* p) {
  return {load256(p), load256(static_cast<const char*>(p) + 32)};
}
LS_LANE void i_store(void* p, I x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, x.b);
}
LS_LANE I i_add(I x, I y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
LS_LANE int32_t i_sum(I x) {
  const __m256i eight = _mm256_add_epi32(x.a, x.b);
  const __m128i four =
      _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}
LS_LANE void i_to_16_bits(int16_t* p, I x) {
  // Packing goes by halves of 128 bits: the two middle quarters change places.
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8));
}
LS_LANE I i_sub(I x, I y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
LS_LANE I i_and(I x, I y) {
  return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
LS_LANE I i_or(I x, I y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
template <int N>
LS_LANE I i_shift_left(I x) {
  return {_mm256_slli_epi32(x.a, N), _mm256_slli_epi32(x.b, N)};
}
template <int N>
LS_LANE I i_shift_right(I x) {
  return {_mm256_srai_epi32(x.a, N), _mm256_srai_epi32(x.b, N)};
}
template <int N>
LS_LANE I i_shift16(I x) {
  if constexpr (N > 0) return {_mm256_srli_epi16(x.a, N), _mm256_srli_epi16(x.b, N)};
  if constexpr (N < 0) return {_mm256_slli_epi16(x.a, -N), _mm256_slli_epi16(x.b, -N)};
  return x;
}
template <int N>
LS_LANE I i_shift16_signed(I x) {
  return {_mm256_srai_epi16(x.a, N), _mm256_srai_epi16(x.b, N)};
}
struct Table {
  __m256i v;  // 16 bytes, twice
};
LS_LANE Table table_of(const int8_t* levels) {
  return {_mm256_broadcastsi128_si256(load128(levels))};
}
// Both bytes of a half find a level each; those of two numbers come of one search.
template <int Number>
LS_LANE __m256i level256(__m256i table, __m256i halves) {
  const __m256i moved = Number % 2 == 0 ? halves : _mm256_srli_epi16(halves, 4);
  const __m256i found = _mm256_shuffle_epi8(table, _mm256_and_si256(moved, _mm256_set1_epi8(15)));
  return _mm256_srai_epi16(Number < 2 ? _mm256_slli_epi16(found, 8) : found, 8);
}
template <int Number>
LS_LANE I i_level(Table table, I halves) {
  return {level256<Number>(table.v, halves.a), level256<Number>(table.v, halves.b)};
}
LS_LANE __m256i dot256(__m256i sum, __m256i x, __m256i y) {  // a statement: see lanes_avx512.h
#ifdef __AVXVNNI__
  asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
#else
  __m256i products;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(x), "x"(y));
#endif
  return sum;
}
LS_LANE I i_dot(I sum, I x, I y) {
  return {dot256(sum.a, x.a, y.a), dot256(sum.b, x.b, y.b)};
}

// Tile sizes that fit 16 registers.
constexpr int kIntPanels = 1, kIntColumns = 6;
constexpr int kFloatPanels = 1, kFloatColumns = 6;
constexpr int kFewColumns = 4;  // up to so many without unpacking weights first
constexpr int kStreams = 1;

}  // namespace
}  // namespace lockstep::exec::cpu
