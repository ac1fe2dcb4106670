// What a trace may hold at most: one table for all readers and writers.
// python/lockstep/_limits.py has the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "json.h"

namespace lockstep::detail {

inline constexpr int64_t kMostPositions = 1 << 24;  // beyond any context; readers walk over them
inline constexpr int64_t kMostWidth = int64_t{1} << 40;  // of a row, and of all that is counted
inline constexpr size_t kMostCheckpoints = 200'000;      // of a trace, and values of a step
inline constexpr size_t kMostNameBytes = 255;            // of a checkpoint's name

// Whether a step of `tokens` tokens may begin at `first`.
inline bool in_positions(int64_t first, int64_t tokens) {
  return first >= 0 && tokens >= 1 && tokens <= kMostPositions && first <= kMostPositions - tokens;
}

// The name of a checkpoint: UTF-8 without control characters.
inline bool is_name(std::string_view name) {
  if (name.empty() || name.size() > kMostNameBytes) return false;
  for (size_t i = 0, length = 0; i < name.size(); i += length) {
    length = utf8_length(name.substr(i));
    if (length == 0 || is_control(name[i])) return false;
  }
  return true;
}
inline constexpr const char* kNameRule = "1 to 255 bytes of printable UTF-8";

}  // namespace lockstep::detail
