// Copies that run on their own.
#pragma once

#include <cstdint>

namespace lockstep::exec::cuda {
namespace {

__device__ inline uint32_t shared_address(const void* place) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(place));
}

// Brings bytes of the device's memory to the cache that all multiprocessors share (from 9.0 on).
__device__ inline void fetch_to_cache(const void* from, int64_t bytes) {
#if __CUDA_ARCH__ >= 900
  const auto place = static_cast<uint64_t>(__cvta_generic_to_global(from));
  const uint64_t begin = place & ~uint64_t{15};
  const auto size =
      static_cast<uint32_t>((place + static_cast<uint64_t>(bytes) - begin) & ~uint64_t{15});
  if (bytes > 0 && size > 0)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(begin), "r"(size));
#endif
}

// 4 or 16 bytes (from 8.0 on). wait_for_copies() waits for all that this thread has asked for,
// wait_for_groups() for all but the last so many groups.
__device__ inline void copy_4(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)),
               "l"(__cvta_generic_to_global(from))
               : "memory");
#endif
}
// Zeros where it is not there.
__device__ inline void copy_16(void* to, const void* from, bool is_there = true) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(is_there ? 16 : 0)
               : "memory");
#endif
}
__device__ inline void end_group() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int N>
__device__ inline void wait_for_groups() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
__device__ inline void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace
}  // namespace lockstep::exec::cuda
