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

std::optional<Match> detect_format(const Exhibit& exhibit) {
  if (!exhibit.format) return std::nullopt;
  constexpr std::pair<Kind, std::string_view> kWhy[kFormats] = {
      {Kind::kHalfPairs,
       "both halves of every number are fp16 numbers of one size; the low half of a true f32 is "
       "noise"},
      {Kind::kBfloatPairs,
       "both halves of every number are bf16 numbers of one size; the low half of a true f32 is "
       "noise"},
      {Kind::kDouble,
       "every second number is noise, the others have the sign, exponent and upper digits of f64"},
      {Kind::kInt8, "all four bytes of the numbers are small integers, far more often than chance"},
      {Kind::kInt8,
       "the bytes in all four places of the numbers are alike, as those of floats are not"},
      {Kind::kInt16, "both halves of the numbers are small integers, far more often than chance"},
      {Kind::kInt32, "as floats all are denormals or NaN with the bits of small integers"},
  };
  const auto& [kind, why] = kWhy[static_cast<size_t>(*exhibit.format)];
  return Match{kind,
               0.95,
               {{0, exhibit.row.count()}},
               fmt::format("{}; {}", reading_of(exhibit.row, *exhibit.format), why)};
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
