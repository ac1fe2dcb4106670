// Good data of another format, read as floats.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "forensics/bits.h"
#include "forensics/detectors.h"

namespace lockstep::forensics {
namespace {

constexpr int64_t kSample = 4096;

int64_t odd_count(const Exhibit& exhibit) {
  return std::ranges::count(exhibit.odd, uint8_t{1});
}

// Whether the numbers could be a model's: of a common size, and not all the same.
bool plausible(std::vector<double> values) {
  std::ranges::sort(values);
  const double middle =
      std::max(std::abs(values[values.size() / 4]), std::abs(values[values.size() * 3 / 4]));
  const auto distinct = std::unique(values.begin(), values.end()) - values.begin();
  return middle > 1e-10 && middle < 1e10 && distinct * 4 >= static_cast<long>(values.size());
}

// Share of numbers whose exponent is within `window` binades of the median one; 0 where some are
// not finite.
double share_in_scale(const std::vector<double>& values, int window) {
  std::vector<int> exponents;
  for (const double value : values) {
    if (!std::isfinite(value)) return 0;
    if (value != 0) exponents.push_back(std::ilogb(value));
  }
  if (exponents.size() * 2 < values.size() || exponents.size() < 6) return 0;
  std::ranges::sort(exponents);
  const int middle = exponents[exponents.size() / 2];
  const auto close =
      std::ranges::count_if(exponents, [&](int e) { return std::abs(e - middle) <= window; });
  return static_cast<double>(close) / static_cast<double>(exponents.size());
}

}  // namespace

std::optional<Match> detect_pairs(const Exhibit& exhibit) {
  const auto pairs = looks_like_pairs(exhibit.row, kSample);
  if (!pairs) return std::nullopt;
  const bool half = *pairs == Pairs::kHalf;
  const auto decode = half ? half_to_float : bfloat_to_float;
  std::string shown;
  for (size_t i = 0; i < 4; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, &exhibit.row.bytes[2 * i], sizeof bits);
    shown += fmt::format("{}{:.3g}", i > 0 ? ", " : "", decode(bits));
  }
  return Match{half ? Kind::kHalfPairs : Kind::kBfloatPairs,
               0.95,
               {{0, exhibit.row.count()}},
               fmt::format("both halves of every number are {} numbers of one scale ({}, ...); the "
                           "low half of a true f32 is noise",
                           half ? "fp16" : "bf16", shown)};
}

std::optional<Match> detect_int8(const Exhibit& exhibit) {
  const Row& row = exhibit.row;
  if (row.dtype != DType::kF32 || !row.exact || row.count() < 32 ||
      odd_count(exhibit) * 5 < row.count())
    return std::nullopt;
  // Uniform bytes are that small in 65 of 256 cases; quantized weights and activations, which are
  // about Gaussian, in half or more.
  const int64_t count = std::min(row.count(), kSample);
  const double chance = 65.0 / 256;
  const double needed = chance + 4 * std::sqrt(chance * (1 - chance) / static_cast<double>(count));
  double least = 1;
  for (int64_t lane = 0; lane < 4; ++lane) {
    int64_t small = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto byte = static_cast<int8_t>(row.bytes[static_cast<size_t>(4 * i + lane)]);
      small += byte >= -32 && byte <= 32;
    }
    least = std::min(least, static_cast<double>(small) / static_cast<double>(count));
  }
  if (least < needed) return std::nullopt;
  return Match{Kind::kInt8,
               0.8,
               {{0, row.count()}},
               fmt::format("{:.0f}% or more of the bytes in each of the four places are within "
                           "-32 to 32, {:.0f}% by chance: small integers, four to a number",
                           100 * least, 100 * chance)};
}

std::optional<Match> detect_text(const Exhibit& exhibit) {
  const Row& row = exhibit.row;
  const TextRun run = longest_text(row);
  if (run.length < kTextBytes) return std::nullopt;
  const int64_t size = size_bytes(row.dtype);
  const Range range = {run.begin / size, (run.begin + run.length) / size};
  const std::string_view text(reinterpret_cast<const char*>(row.bytes.data()) + run.begin,
                              static_cast<size_t>(run.length));
  return Match{
      Kind::kText,
      0.96,
      {range},
      fmt::format("{} bytes in a row are printable: '{}'", run.length, printable(text, 40))};
}

std::optional<Match> detect_byte_swapped(const Exhibit& exhibit) {
  const Row& row = exhibit.row;
  if (!row.exact || row.count() < 8 || odd_count(exhibit) * 10 < row.count()) return std::nullopt;
  const auto size = static_cast<size_t>(size_bytes(row.dtype));
  std::vector<double> stored, swapped;
  for (int64_t i = 0; i < std::min(row.count(), kSample); ++i) {
    std::byte bytes[8];
    const auto* here = row.bytes.data() + static_cast<size_t>(i) * size;
    std::reverse_copy(here, here + size, bytes);
    stored.push_back(row.at(i));
    swapped.push_back(load_number(row.dtype, bytes));
  }
  const int window = row.dtype == DType::kF16 ? 5 : 10;
  const double now = share_in_scale(stored, window), then = share_in_scale(swapped, window);
  // Denormals are close to each other too, but none of a model's.
  const bool denormal = exhibit.stats.median < 0x1p-100;
  if (then < 0.95 || (now > 0.6 && !denormal) || !plausible(swapped)) return std::nullopt;
  return Match{
      Kind::kByteSwapped,
      0.93,
      {{0, row.count()}},
      fmt::format("with the bytes of each number reversed {:.0f}% are of one scale ({:.3g}, "
                  "{:.3g}, {:.3g}, ...), as stored {:.0f}%",
                  100 * then, swapped[0], swapped[1], swapped[2], 100 * now)};
}

}  // namespace lockstep::forensics
