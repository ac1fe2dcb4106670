// Products of small matrices of halves on the tensor cores, with sums in single precision (from
// compute capability 8.0 on).
#pragma once

#include <cuda_fp16.h>

#include "exec/cuda/shared/pipe.cuh"

namespace lockstep::exec::cuda {
namespace {

// Fragments of 16 x 16 and 16 x 8 numbers, spread over a warp as mma wants them.
struct Left {
  uint32_t words[4];
};
struct Right {
  uint32_t words[2];
};

__device__ inline void multiply_add(float (&sum)[4], const Left& a, const Right& b) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b.words[0]),
        "r"(b.words[1]));
#endif
}

// Four matrices of 8 x 8 halves; each lane names a row of 16 bytes.
template <bool kTransposed>
__device__ inline void load_matrices(const __half* row, uint32_t& a, uint32_t& b, uint32_t& c,
                                     uint32_t& d) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(shared_address(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(shared_address(row))
                 : "memory");
#endif
}

__device__ inline void load_two_matrices_transposed(const __half* row, uint32_t& a, uint32_t& b) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(a), "=r"(b)
               : "r"(shared_address(row))
               : "memory");
#endif
}

// Two numbers as halves, and what is left of them as halves.
__device__ inline void split(float x, float y, uint32_t& high, uint32_t& low) {
  const __half2 upper = __floats2half2_rn(x, y);
  const float2 rounded = __half22float2(upper);
  const __half2 rest = __floats2half2_rn(x - rounded.x, y - rounded.y);
  high = *reinterpret_cast<const uint32_t*>(&upper);
  low = *reinterpret_cast<const uint32_t*>(&rest);
}

// The power of two that brings numbers up to `most` into a half's range with bits to spare, as its
// exponent. Infinity stays what it is.
constexpr int kMostShift = 100;  // a float's exponent has room for it either way
__device__ inline int shift_into_range(float most) {
  const int exponent = static_cast<int>(__float_as_uint(most) >> 23) - 127;
  return exponent >= 128 ? 0 : min(12 - exponent, kMostShift);
}
__device__ inline float power_of_two(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}

}  // namespace
}  // namespace lockstep::exec::cuda
