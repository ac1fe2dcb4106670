// Whether rows of f32 are good numbers of another type, read as f32 by mistake. A row of a log
// keeps six numbers or so, too few to prove anything alone: evidence is counted in bits (twice as
// likely is one bit) and added up over the rows of a checkpoint.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "forensics/source.h"

namespace lockstep::forensics {

// int8 twice: of about Gaussian size, and of any distribution that is the same for all of them.
enum class Format { kHalf, kBfloat, kDouble, kInt8, kInt8Any, kInt16, kInt32 };
inline constexpr size_t kFormats = 7;

// What one row says for each format (positive) or against it (negative).
struct FormatBits {
  std::array<double, kFormats> bits{};
  // Of small integers, by their place in a number: they show in every place, chance does not.
  std::array<double, 4> int8{}, int8_any{};
  std::array<double, 2> int16{};
  bool huge = false;  // some number is larger than those of models

  double of(Format format) const { return bits[static_cast<size_t>(format)]; }
};

// Numbers of a row that are looked at.
inline constexpr int64_t kFormatSample = 256;
// Shorter rows are taken together with the others of their checkpoint.
inline constexpr int64_t kShortRow = 64;

// Halves of doubles that rows before had.
struct KnownWords {
  std::unordered_set<uint32_t> lower, upper;
};

// Collects the evidence of the rows of one checkpoint. Numbers that were seen before (constants,
// few levels, copies of rows) say nothing again.
class FormatEvidence {
 public:
  FormatBits add(const Row& row);

 private:
  std::vector<uint32_t> fresh_halves(const std::vector<uint32_t>& words);
  void add_int8_of_any_size(const std::vector<uint32_t>& fresh, FormatBits& out);

  std::array<std::bitset<65536>, 2> halves_;  // low and high 16 bits of words that were seen
  std::unordered_set<uint32_t> words_;        // that are small integers
  KnownWords doubles_;
  std::array<int64_t, 16> nibbles_{};  // upper ones of bytes, by how often
};

// The format that one long row proves by itself.
std::optional<Format> format_of_row(const Row& row);

// For the rows of one checkpoint, in order: the format that they prove together, over the stretch
// of rows that speaks for it.
std::vector<std::optional<Format>> formats_of_rows(const std::vector<FormatBits>& rows);

// What the row is when it is read rightly: "f16 numbers: 0.0123, -1.5, ...".
std::string reading_of(const Row& row, Format format);

}  // namespace lockstep::forensics
