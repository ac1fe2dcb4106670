// Doubles that were read as pairs of f32.
#include "forensics/format_words.h"

namespace lockstep::forensics {
namespace {

int double_exponent(const Split& split) {
  return static_cast<int>(split.upper >> 20 & 0x7ff);
}

// Whether the double was an f32 before, of which a log of six digits may have kept the lower word
// to 2^-17.
bool was_float(const Split& split) {
  return ((split.lower + 0x40) & 0x1fffff80) == 0;
}

}  // namespace

std::vector<int64_t> pairs_of(const Row& row) {
  const int64_t pairs = (row.count() + 1) / 2, most = kFormatSample / 2;
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < std::min(pairs, most); ++i)
    starts.push_back(2 * (pairs <= most ? i : i * pairs / most));
  return starts;
}

std::vector<Split> splits_of(const Row& row, int64_t phase) {
  std::vector<Split> splits;
  for (const int64_t start : pairs_of(row)) {
    if (start + phase + 1 >= row.count()) continue;
    const Split split = {word_of(row, start + phase), word_of(row, start + phase + 1)};
    if ((split.lower | split.upper) != 0) splits.push_back(split);
  }
  return splits;
}

double double_bits(const std::vector<Split>& splits, const KnownWords& known) {
  if (splits.empty()) return 0;
  std::vector<int> exponents;
  for (const Split& split : splits) exponents.push_back(double_exponent(split));
  const int middle = middle_of(std::move(exponents)), float_middle = middle >> 3;
  if (std::abs(middle - 1023) > 40) return kAgainst * static_cast<double>(splits.size());
  const auto ends_in_zeros = [](const Split& split) { return (split.lower & 0x1fffffff) == 0; };
  const auto is_zero = [](const Split& split) { return (split.lower & 0x7fffffff) == 0; };
  const bool widened = std::ranges::all_of(splits, ends_in_zeros);
  const bool all_zero = std::ranges::all_of(splits, is_zero);
  // As f32 the upper words of doubles that models have are about 1. How much larger the lower word
  // is, in binades.
  const auto apart_of = [](const Split& split) { return exponent_of(split.lower) - 127; };
  const auto is_huge_lower = [&](const Split& split) { return apart_of(split) > 20; };
  if (splits.size() >= 32 && !widened && std::ranges::none_of(splits, is_huge_lower))
    return kAgainst * static_cast<double>(splits.size());
  double over_noise = -size_bits(0, 2048), over_floats = 0;
  std::unordered_set<uint32_t> seen;
  for (const Split& split : splits) {
    if (known.upper.contains(split.upper) || !seen.insert(split.upper).second) continue;
    if (known.lower.contains(split.lower) && !was_float(split)) continue;
    const int distance = double_exponent(split) - middle;
    over_noise += size_bits(distance, 2048);
    if (all_zero) {
      // Every second number may well be zero. Then the others must be likelier as doubles than as
      // f32 of about Gaussian sizes.
      const int float_distance = (double_exponent(split) >> 3) - float_middle;
      over_floats += std::max(3 + std::abs(float_distance) - std::abs(distance), -8);
      continue;
    }
    // No model has a number 2^20 times its neighbour beside one so much smaller than its neighbour.
    const int apart = apart_of(split);
    if (std::abs(exponent_of(split.upper) - 127) > 6)
      over_floats += 2 * kAgainst;
    else if (is_zero(split))
      over_floats += widened ? 1 : -1;
    else if (apart > 20)
      over_floats += 14;
    else if (apart < -20)
      over_floats += widened ? 3 : 0.5;
    else
      over_floats += widened ? 1 : -2;
  }
  // Numbers that are all about 1 are as likely f32, but not if half of them are about -1.
  const auto negative =
      std::ranges::count_if(splits, [](const Split& split) { return split.upper >> 31 != 0; });
  const auto count = static_cast<long>(splits.size());
  if (all_zero && (negative * 5 < count || negative * 5 > 4 * count))
    over_floats = std::min(over_floats, 0.0);
  return std::min(over_noise, over_floats);
}

}  // namespace lockstep::forensics
