#include "forensics/row_stats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <xxhash.h>

#include "forensics/bits.h"

namespace lockstep::forensics {
namespace {

constexpr double kHugeAtLeast = 1e6;
constexpr double kHugeRatio = 0x1p24;
constexpr int64_t kSignSample = 256;  // numbers of a row that the signs are looked for in

// Whether four numbers in a row have the same bits and are not 0.
bool has_run(const Row& row) {
  const auto size = static_cast<size_t>(size_bytes(row.dtype));
  int run = 1;
  for (int64_t i = 1; i < row.count(); ++i) {
    const std::byte* here = row.bytes.data() + static_cast<size_t>(i) * size;
    const bool same = std::memcmp(here, here - size, size) == 0 && row.at(i) != 0;
    run = same ? run + 1 : 1;
    if (run * static_cast<int>(size) >= 16 && run >= 2) return true;
  }
  return false;
}

// At least four numbers that are neither 0 nor 1 and not the same.
bool is_varied(const Row& row) {
  std::array<double, 4> seen{};
  size_t count = 0;
  for (int64_t i = 0; i < std::min(row.count(), 4 * kSignSample); ++i) {
    const double value = row.at(i);
    if (!std::isfinite(value) || value == 0 || value == 1) continue;
    if (std::find(seen.begin(), seen.begin() + static_cast<long>(count), value) !=
        seen.begin() + static_cast<long>(count))
      continue;
    seen[count++] = value;
    if (count == seen.size()) return true;
  }
  return false;
}

}  // namespace

bool is_huge(double value, double scale) {
  const double magnitude = std::abs(value);
  return magnitude > kHugeAtLeast && magnitude > kHugeRatio * scale;
}

bool line_is_zero(const Row& row, int64_t line) {
  const int64_t width = row.count() / row.lines;
  for (int64_t i = line * width; i < (line + 1) * width; ++i)
    if (row.at(i) != 0) return false;
  return width > 0;
}

bool is_mask_value(double value) {
  if (value > -9e3) return false;
  for (const double mask : {3.4028234663852886e38, 3.3895313892515355e38, 1.7976931348623157e308,
                            65504.0, 1e4, 1e5, 1e9, 1e10, 1e30, 1e38})
    if (std::abs(value + mask) <= 1e-3 * mask) return true;
  return false;
}

bool is_denormal(DType dtype, double value) {
  constexpr double kSmallest[] = {0x1p-1022, 0x1p-126, 0x1p-14, 0x1p-126};
  return value != 0 && std::abs(value) < kSmallest[static_cast<int>(dtype)];
}

RowStats measure(const Row& row) {
  RowStats stats;
  stats.count = row.count();
  std::array<int64_t, 2048> exponents{};  // by the biased exponent of the number as a double
  double shift = 0;                       // sums are taken around the first number
  double sum = 0, squares = 0;
  bool saturated = false;
  int64_t zeros_in_a_row = 0;
  for (int64_t i = 0; i < stats.count; ++i) {
    const double value = row.at(i);
    zeros_in_a_row = value == 0 ? zeros_in_a_row + 1 : 0;
    if (zeros_in_a_row > stats.zero_run.end - stats.zero_run.begin)
      stats.zero_run = {i + 1 - zeros_in_a_row, i + 1};
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? stats.nans
         : value > 0       ? stats.plus_infinities
                           : stats.minus_infinities);
      continue;
    }
    if (stats.finite++ == 0) shift = stats.min = stats.max = value;
    stats.min = std::min(stats.min, value);
    stats.max = std::max(stats.max, value);
    sum += value - shift;
    squares += (value - shift) * (value - shift);
    const double magnitude = std::abs(value);
    if (magnitude > stats.largest || stats.largest_at < 0) {
      stats.largest = magnitude;
      stats.largest_at = i;
    }
    if (value == 0) {
      ++stats.zeros;
      continue;
    }
    stats.denormals += is_denormal(row.dtype, value);
    // A mask says nothing of how large the numbers are.
    if (is_mask_value(value)) {
      ++stats.mask_values;
      saturated = saturated || magnitude == kHalfLimit;
      continue;
    }
    saturated = saturated || magnitude == kHalfLimit;
    ++exponents[std::bit_cast<uint64_t>(magnitude) >> 52];
  }
  if (stats.finite > 0) {
    const auto n = static_cast<double>(stats.finite);
    stats.mean = shift + sum / n;
    stats.deviation = std::sqrt(std::max(squares / n - (sum / n) * (sum / n), 0.0));
  }
  int64_t below = 0;
  const int64_t half = (stats.finite - stats.zeros - stats.mask_values + 1) / 2;
  for (size_t e = 0; e < exponents.size() && half > 0; ++e) {
    below += exponents[e];
    if (below < half) continue;
    stats.median = std::ldexp(1.0, static_cast<int>(e) - 1023);
    break;
  }
  stats.hash = XXH3_64bits(row.bytes.data(), row.bytes.size());
  stats.varied = is_varied(row);
  for (int64_t line = 0; line < row.lines && stats.zeros > 0; ++line)
    stats.zero_lines += line_is_zero(row, line);
  if (stats.count >= kShortRow) stats.format = format_of_row(row);
  stats.closer_look = stats.nans > 0 || stats.plus_infinities > 0 || stats.minus_infinities > 0 ||
                      stats.denormals > 0 || saturated || is_huge(stats.largest, stats.median) ||
                      has_run(row) || stats.format.has_value() ||
                      longest_text(row).length >= kTextBytes;
  return stats;
}

}  // namespace lockstep::forensics
