// The tensor formats of GGUF files: identity and size of each. blocks.h has layout and decoding.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::quant {

// The values are GGUF's type numbers.
enum class Format : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kMXFP4 = 39,
};

struct FormatInfo {
  uint32_t id;            // GGUF's type number
  std::string_view name;  // as written in tables: "Q4_K"
  int64_t block_values;   // values in a block; a row is a whole number of blocks
  int64_t block_bytes;
  bool decodable;  // false: known only so that files that hold it can be listed

  Format format() const { return static_cast<Format>(id); }
};

// Every type number that GGUF files may hold, decodable or not.
std::span<const FormatInfo> all_formats();

// nullptr where GGUF has no such type.
const FormatInfo* find_format(uint32_t id);
const FormatInfo* find_format(std::string_view name);  // any case
const FormatInfo& info(Format format);

// Ends the program: the caller passed on a format that it should have refused. (A function, since
// blocks.h is read by nvcc, which cannot read the headers behind LS_CHECK.)
[[noreturn]] void not_decodable(Format format);

// Bytes of `values` consecutive values (a multiple of the block).
int64_t size_bytes(const FormatInfo& format, int64_t values);

}  // namespace lockstep::quant
