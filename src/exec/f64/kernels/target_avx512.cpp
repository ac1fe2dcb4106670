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

  static Eight zero() { return {_mm512_setzero_pd()}; }
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
const Kernels kAvx512 = {"avx512", [] { return __builtin_cpu_supports("avx512f") != 0; }, add,
                         finish, estimate};
}  // namespace lockstep::exec::f64
#endif
