// Parts that the judges of formats share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <unordered_set>
#include <vector>

#include "forensics/formats.h"

namespace lockstep::forensics {

inline constexpr double kAgainst = -4;  // the most that a single number says against

inline uint32_t word_of(const Row& row, int64_t index) {
  uint32_t word = 0;
  std::memcpy(&word, &row.bytes[static_cast<size_t>(index) * sizeof word], sizeof word);
  return word;
}

inline int exponent_of(uint32_t word) {
  return static_cast<int>(word >> 23 & 0xff);
}

// Where pairs of numbers start that are looked at, from all over the row.
std::vector<int64_t> pairs_of(const Row& row);

template <class T>
T middle_of(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Bits for a number that has a model's size, over one of `exponents` that come by chance. Numbers
// of a model get rarer by half with every binade away from the middle.
inline double size_bits(int distance, double exponents) {
  return std::max(std::log2(exponents / 3) - std::abs(distance), kAgainst);
}

// Two f32 that one double makes: its lower bits, and sign, exponent and upper bits.
struct Split {
  uint32_t lower;
  uint32_t upper;
};

// Either way to pair the words of a row: from the first on, or (phase 1) from the second.
std::vector<Split> splits_of(const Row& row, int64_t phase);

// The lower words of doubles are noise (or a few patterns, where they were f32 before), while the
// upper words are of one size. Doubles are left out whose upper word is known, or whose lower word
// is and has no such pattern: noise does not repeat, but the same word in every row does (an
// allocator's key beside logits).
double double_bits(const std::vector<Split>& splits, const KnownWords& known);

}  // namespace lockstep::forensics
