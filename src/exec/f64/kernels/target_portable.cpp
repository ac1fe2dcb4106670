// Products for any machine.
#include <cstdint>

namespace lockstep::exec::f64 {
namespace {

// Loops that compilers turn into what registers there are.
struct Eight {
  double v[8];
  static constexpr int kWeights = 2;
  static constexpr int kRows = 1;
  static constexpr int kEights = 1;
  static constexpr int kQuickRows = 2;

  template <class F>
  static Eight each(const F& f) {
    Eight out;
    for (int i = 0; i < 8; ++i) out.v[i] = f(i);
    return out;
  }
  static Eight zero() { return {}; }
  static Eight set(double x) {
    return each([&](int) { return x; });
  }
  static Eight load(const double* p) {
    return each([&](int i) { return p[i]; });
  }
  static Eight load(const float* p) {
    return each([&](int i) { return static_cast<double>(p[i]); });
  }
  static void store(double* p, const Eight& x) {
    for (int i = 0; i < 8; ++i) p[i] = x.v[i];
  }
  static Eight add(const Eight& a, const Eight& b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  static Eight subtract(const Eight& a, const Eight& b) {
    return each([&](int i) { return a.v[i] - b.v[i]; });
  }
  static Eight multiply(const Eight& a, const Eight& b) {
    return each([&](int i) { return a.v[i] * b.v[i]; });
  }
  // Where the product is exact, this is the same.
  static Eight fused(const Eight& a, const Eight& b, const Eight& c) {
    return each([&](int i) { return c.v[i] + a.v[i] * b.v[i]; });
  }
};

struct Singles {
  float v[4];
  static constexpr int kLanes = 4;
  static constexpr int kWidth = 8;
  static constexpr int kRows = 2;

  template <class F>
  static Singles each(const F& f) {
    Singles out;
    for (int i = 0; i < kLanes; ++i) out.v[i] = f(i);
    return out;
  }
  // So many rows and columns at a time: whole lines of the cache.
  static constexpr int64_t kSquare = 16;
  static void transpose(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    for (int64_t i = 0; i < kSquare; ++i)
      for (int64_t r = 0; r < kSquare; ++r) to[i * to_stride + r] = from[r * from_stride + i];
  }

  static Singles zero() { return {}; }
  static Singles set(float x) {
    return each([&](int) { return x; });
  }
  static Singles load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  static void store(float* p, const Singles& x) {
    for (int i = 0; i < kLanes; ++i) p[i] = x.v[i];
  }
  static Singles add(const Singles& a, const Singles& b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  static Singles fused(const Singles& a, const Singles& b, const Singles& c) {
    return each([&](int i) { return c.v[i] + a.v[i] * b.v[i]; });
  }
};

}  // namespace
}  // namespace lockstep::exec::f64

#include "exec/f64/kernels/target.h"

namespace lockstep::exec::f64 {
extern const Kernels kPortable;
const Kernels kPortable = {"portable", [] { return true; }, add,      finish,      add_quickly,
                           widen,      transpose,           estimate, estimate_few};
}  // namespace lockstep::exec::f64
