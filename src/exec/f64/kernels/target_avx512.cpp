// Products for machines with AVX-512.
#ifdef __x86_64__
#include <cstdint>

#include <immintrin.h>

// GCC 12 warns about the undefined registers inside its own intrinsics.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace lockstep::exec::f64 {
namespace {

struct Eight {
  __m512d v;
  static constexpr int kWeights = 4;  // rows of the weight, and of x, whose sums fit in registers
  static constexpr int kRows = 6;
  static constexpr int kEights = 4;  // of a panel's rows, likewise, where each has one sum
  static constexpr int kQuickRows = 6;

  static Eight zero() { return {_mm512_setzero_pd()}; }
  static Eight set(double x) { return {_mm512_set1_pd(x)}; }
  static Eight load(const double* p) { return {_mm512_loadu_pd(p)}; }
  static Eight load(const float* p) { return {_mm512_cvtps_pd(_mm256_loadu_ps(p))}; }
  static void store(double* p, Eight x) { _mm512_storeu_pd(p, x.v); }
  static Eight add(Eight a, Eight b) { return {_mm512_add_pd(a.v, b.v)}; }
  static Eight subtract(Eight a, Eight b) { return {_mm512_sub_pd(a.v, b.v)}; }
  static Eight multiply(Eight a, Eight b) { return {_mm512_mul_pd(a.v, b.v)}; }
  static Eight fused(Eight a, Eight b, Eight c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
};

struct Singles {
  __m512 v;
  static constexpr int kLanes = 16;
  static constexpr int kWidth = 32;  // rows of the weight at a time
  static constexpr int kRows = 12;

  // So many rows and columns at a time, in registers: every step interleaves a row with the one
  // eight below it.
  static constexpr int64_t kSquare = 16;
  static void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    __m512 rows[kSquare];
    for (int r = 0; r < kSquare; ++r) rows[r] = _mm512_loadu_ps(from + r * from_stride);
    for (int step = 0; step < 4; ++step) {
      __m512 next[kSquare];
      for (int r = 0; r < kSquare / 2; ++r) {
        next[2 * r] = _mm512_permutex2var_ps(rows[r], low, rows[r + kSquare / 2]);
        next[2 * r + 1] = _mm512_permutex2var_ps(rows[r], high, rows[r + kSquare / 2]);
      }
      for (int r = 0; r < kSquare; ++r) rows[r] = next[r];
    }
    for (int r = 0; r < kSquare; ++r) _mm512_storeu_ps(to + r * to_stride, rows[r]);
  }

  static Singles zero() { return {_mm512_setzero_ps()}; }
  static Singles set(float x) { return {_mm512_set1_ps(x)}; }
  static Singles load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static void store(float* p, Singles x) { _mm512_storeu_ps(p, x.v); }
  static Singles add(Singles a, Singles b) { return {_mm512_add_ps(a.v, b.v)}; }
  static Singles fused(Singles a, Singles b, Singles c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
};

}  // namespace
}  // namespace lockstep::exec::f64

#include "exec/f64/kernels/target.h"

namespace lockstep::exec::f64 {
extern const Kernels kAvx512;
const Kernels kAvx512 = {"avx512",    [] { return __builtin_cpu_supports("avx512f") != 0; },
                         add,         finish,
                         add_quickly, widen,
                         transpose,   estimate,
                         estimate_few};
}  // namespace lockstep::exec::f64
#endif
