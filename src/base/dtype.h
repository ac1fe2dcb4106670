// The number types that values of a forward pass are kept in.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/float16.h"

namespace lockstep {

enum class DType : uint8_t { kF64, kF32, kF16, kBF16 };

constexpr std::string_view name(DType dtype) {
  constexpr std::string_view kNames[] = {"f64", "f32", "f16", "bf16"};
  return kNames[static_cast<int>(dtype)];
}

constexpr int64_t size_bytes(DType dtype) {
  constexpr int64_t kSizes[] = {8, 4, 2, 2};
  return kSizes[static_cast<int>(dtype)];
}

// The number at `place`, which needs no alignment.
inline double load_number(DType dtype, const void* place) {
  if (dtype == DType::kF64) {
    double value;
    std::memcpy(&value, place, sizeof value);
    return value;
  }
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, place, sizeof value);
    return static_cast<double>(value);
  }
  uint16_t bits;
  std::memcpy(&bits, place, sizeof bits);
  return static_cast<double>(dtype == DType::kF16 ? half_to_float(bits) : bfloat_to_float(bits));
}

}  // namespace lockstep
