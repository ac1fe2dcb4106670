// The number types that values of a forward pass are kept in.
#pragma once

#include <cstdint>
#include <string_view>

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

}  // namespace lockstep
