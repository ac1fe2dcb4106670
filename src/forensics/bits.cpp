#include "forensics/bits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace lockstep::forensics {
namespace {

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Whether halves, read as `decode` says, are numbers of one scale on both sides. The low halves of
// true f32 numbers are noise, spread over all exponents.
template <class Decode>
bool one_scale(const std::vector<uint32_t>& words, const Decode& decode, double needed) {
  std::vector<double> sides[2];
  for (const uint32_t word : words)
    for (int side = 0; side < 2; ++side) {
      const double value = std::abs(static_cast<double>(
          decode(static_cast<uint16_t>(side == 0 ? word & 0xffff : word >> 16))));
      if (!std::isfinite(value)) return false;
      if (value != 0) sides[side].push_back(value);
    }
  if (sides[0].size() < words.size() * 3 / 4 || sides[1].size() < words.size() * 3 / 4)
    return false;
  const double low = median_of(sides[0]), high = median_of(sides[1]);
  if (low > 4 * high || high > 4 * low) return false;
  for (const auto& side : sides) {
    const double middle = &side == &sides[0] ? low : high;
    const auto close =
        std::ranges::count_if(side, [&](double v) { return v > middle / 64 && v < middle * 64; });
    // Few numbers must all agree, or chance would.
    const double share = words.size() < 16 ? 1.0 : needed;
    if (static_cast<double>(close) < share * static_cast<double>(side.size())) return false;
  }
  return low > 1e-6 && high < 1e6;
}

}  // namespace

int64_t words_in(const Row& row) {
  return static_cast<int64_t>(row.bytes.size() / 8);
}

uint64_t word_at(const Row& row, int64_t index) {
  uint64_t word = 0;
  std::memcpy(&word, &row.bytes[static_cast<size_t>(index) * 8], sizeof word);
  return word;
}

Region region_of(uint64_t word) {
  const uint64_t top = word >> 32;
  if ((top >= 0x5500 && top < 0x5800) || (top >= 0xaaaa && top < 0xac00)) return Region::kHeap;
  if ((top >= 0x7e00 && top < 0x8000) || (top >= 0xfe00 && top <= 0xffff)) return Region::kMapped;
  return Region::kNone;
}

uint64_t unmask_link(uint64_t stored) {
  uint64_t link = stored;
  // Each round makes 12 more bits right, from the top.
  for (int round = 0; round < 4; ++round) link = stored ^ (link >> 12);
  return link;
}

bool is_masked_null(uint64_t word) {
  return word >> 36 == 0 && region_of(word << 12) != Region::kNone;
}

std::optional<Pairs> looks_like_pairs(const Row& row, int64_t sample) {
  const int64_t count = std::min(row.count(), sample);
  if (row.dtype != DType::kF32 || !row.exact || count < 8) return std::nullopt;
  std::vector<uint32_t> words(static_cast<size_t>(count));
  std::memcpy(words.data(), row.bytes.data(), words.size() * sizeof(uint32_t));
  std::erase(words, 0u);
  if (words.size() < 8) return std::nullopt;
  // Rounded numbers have few different low halves (none at all from bfloat16).
  std::vector<uint16_t> lows;
  for (const uint32_t word : words) lows.push_back(static_cast<uint16_t>(word));
  std::ranges::sort(lows);
  lows.erase(std::unique(lows.begin(), lows.end()), lows.end());
  if (lows.size() < words.size() / 2) return std::nullopt;
  // Noise and fp16 read as bf16 are of all scales; bf16 read as fp16 is of one.
  if (one_scale(words, bfloat_to_float, 0.8)) return Pairs::kBfloat;
  // Noise lands near the scale of fp16, which has 5 bits of exponent, far more often.
  if (words.size() >= 24 && one_scale(words, half_to_float, words.size() < 64 ? 0.93 : 0.85))
    return Pairs::kHalf;
  return std::nullopt;
}

// Numbers of a narrow range, rounded to 16 bits, can be printable throughout, but then their top
// bytes (sign and exponent) are all but the same; those of text differ like its other letters.
static bool top_bytes_vary(const Row& row, const TextRun& run) {
  const int64_t size = size_bytes(row.dtype);
  std::array<bool, 256> seen{};
  int64_t different = 0, count = 0;
  for (int64_t i = run.begin + size - 1 - run.begin % size; i < run.begin + run.length; i += size) {
    bool& known = seen[static_cast<size_t>(row.bytes[static_cast<size_t>(i)])];
    different += !known;
    known = true;
    ++count;
  }
  return different >= std::min<int64_t>(6, count / 2);
}

TextRun longest_text(const Row& row) {
  TextRun best, run;
  int64_t letters = 0;
  const auto close = [&] {
    if (run.length > best.length && letters * 10 >= run.length * 7 && top_bytes_vary(row, run))
      best = run;
    letters = 0;
  };
  const auto size = static_cast<int64_t>(row.bytes.size());
  for (int64_t i = 0; i < size; ++i) {
    const auto c = static_cast<unsigned char>(row.bytes[static_cast<size_t>(i)]);
    if ((c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t') {
      if (run.length == 0) run.begin = i;
      ++run.length;
      letters += c == ' ' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    } else {
      close();
      run.length = 0;
    }
  }
  close();
  return row.exact ? best : TextRun{};
}

}  // namespace lockstep::forensics
