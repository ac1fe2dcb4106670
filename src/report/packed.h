// Many numbers in little text, for pages.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep::report {

// A size as 16 bits: steps of a sixteenth of a power of two, about 4%.
inline constexpr uint16_t kMissingCode = 0;
inline constexpr uint16_t kNotJudgedCode = 1;
inline constexpr uint16_t kZeroCode = 2;
inline constexpr uint16_t kInfiniteCode = 65535;
uint16_t size_code(double value);

std::string base64(std::span<const std::byte> bytes);
// Little-endian bytes, by zlib, as base64.
std::string packed(std::span<const uint16_t> codes);

}  // namespace lockstep::report
