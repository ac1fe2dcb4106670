// Products for machines with AVX2 and FMA.
#ifdef __x86_64__
#include <cstdint>

#include <immintrin.h>

namespace lockstep::exec::f64 {
namespace {

struct Eight {
  __m256d low;
  __m256d high;
  static constexpr int kWeights = 2;  // rows of the weight, and of x, whose sums fit in registers
  static constexpr int kRows = 3;
  static constexpr int kEights = 1;  // of a panel's rows, likewise, where each has one sum
  static constexpr int kQuickRows = 6;

  static Eight zero() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
  static Eight set(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
  static Eight load(const double* p) { return {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)}; }
  static Eight load(const float* p) {
    return {_mm256_cvtps_pd(_mm_loadu_ps(p)), _mm256_cvtps_pd(_mm_loadu_ps(p + 4))};
  }
  static void store(double* p, Eight x) {
    _mm256_storeu_pd(p, x.low);
    _mm256_storeu_pd(p + 4, x.high);
  }
  static Eight add(Eight a, Eight b) {
    return {_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
  }
  static Eight subtract(Eight a, Eight b) {
    return {_mm256_sub_pd(a.low, b.low), _mm256_sub_pd(a.high, b.high)};
  }
  static Eight multiply(Eight a, Eight b) {
    return {_mm256_mul_pd(a.low, b.low), _mm256_mul_pd(a.high, b.high)};
  }
  static Eight fused(Eight a, Eight b, Eight c) {
    return {_mm256_fmadd_pd(a.low, b.low, c.low), _mm256_fmadd_pd(a.high, b.high, c.high)};
  }
};

struct Singles {
  __m256 v;
  static constexpr int kLanes = 8;
  static constexpr int kWidth = 16;  // rows of the weight at a time
  static constexpr int kRows = 6;

  // So many rows and columns at a time: whole lines of the cache.
  static constexpr int64_t kSquare = 16;
  static void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    for (int64_t i = 0; i < kSquare; ++i)
      for (int64_t r = 0; r < kSquare; ++r) to[i * to_stride + r] = from[r * from_stride + i];
  }

  static Singles zero() { return {_mm256_setzero_ps()}; }
  static Singles set(float x) { return {_mm256_set1_ps(x)}; }
  static Singles load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static void store(float* p, Singles x) { _mm256_storeu_ps(p, x.v); }
  static Singles add(Singles a, Singles b) { return {_mm256_add_ps(a.v, b.v)}; }
  static Singles fused(Singles a, Singles b, Singles c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
};

}  // namespace
}  // namespace lockstep::exec::f64

#include "exec/f64/kernels/target.h"

namespace lockstep::exec::f64 {
extern const Kernels kAvx2;
const Kernels kAvx2 = {
    "avx2",      [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); },
    add,         finish,
    add_quickly, widen,
    transpose,   estimate,
    estimate_few};
}  // namespace lockstep::exec::f64
#endif
