// Eight numbers at a time. The operations and their order are the same on every machine, and so are
// the bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// For functions whose loops are worth wide registers: the best version is chosen at run time.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LS_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LS_WIDE
#endif

namespace lockstep::parity {

inline constexpr size_t kTermLanes = 8;
using TermLanes = double __attribute__((vector_size(kTermLanes * sizeof(double))));
using TermBits = int64_t __attribute__((vector_size(kTermLanes * sizeof(double))));

}  // namespace lockstep::parity

// The next numbers; zeros where there are no more.
#define LS_LOAD(lanes, from, left)                          \
  TermLanes lanes = {};                                     \
  if (left >= kTermLanes) {                                 \
    std::memcpy(&lanes, from, sizeof lanes);                \
  } else {                                                  \
    for (size_t j = 0; j < left; ++j) lanes[j] = (from)[j]; \
  }                                                         \
  static_cast<void>(0)

// As many of them as there is room for.
#define LS_STORE(lanes, to, left)                         \
  if (left >= kTermLanes) {                               \
    std::memcpy(to, &lanes, sizeof lanes);                \
  } else {                                                \
    for (size_t j = 0; j < left; ++j) (to)[j] = lanes[j]; \
  }                                                       \
  static_cast<void>(0)

#define LS_SIZES(lanes) reinterpret_cast<TermLanes>(reinterpret_cast<TermBits>(lanes) & INT64_MAX)
