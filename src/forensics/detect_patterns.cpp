// Fill patterns, limits, overflow and noise.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "forensics/bits.h"
#include "forensics/detectors.h"

namespace lockstep::forensics {
namespace {

struct Pattern {
  uint32_t word;  // as it lies in memory, little-endian
  std::string_view whose;
};

constexpr Pattern kPatterns[] = {
    {0xcdcdcdcd, "fresh memory of the MSVC debug heap"},
    {0xdddddddd, "freed memory of the MSVC debug heap"},
    {0xfdfdfdfd, "guard bytes of the MSVC debug heap"},
    {0xcccccccc, "uninitialized stack of MSVC debug builds"},
    {0xbaadf00d, "fresh memory of the Windows heap"},
    {0xfeeefeee, "freed memory of the Windows heap"},
    {0xabababab, "guard bytes of the Windows heap"},
    {0xdeadbeef, "a poison word"},
    {0xefbeadde, "a poison word, big-endian"},
    {0xdeaddead, "a poison word"},
    {0xcafebabe, "a poison word"},
    {0x0badf00d, "a poison word"},
    {0xbebebebe, "fresh memory under AddressSanitizer"},
    {0xa5a5a5a5, "fresh memory of jemalloc"},
    {0x5a5a5a5a, "freed memory of jemalloc"},
    {0xaaaaaaaa, "a fill byte of allocators (0xaa)"},
    {0x55555555, "a fill byte of allocators (0x55)"},
    {0xfefefefe, "a fill byte (0xfe)"},
    {0x7fbadbad, "a signalling NaN that marks memory never written"},
    {0x7fa00000, "a signalling NaN that marks memory never written"},
    {0xffffffff, "memory set to 0xff"},
    {0x7f7f7f7f, "memory set to 0x7f"},
};

// Whether number `index` is what the pattern's bytes make at that place.
bool matches(const Row& row, int64_t index, const Pattern& pattern) {
  const auto size = static_cast<size_t>(size_bytes(row.dtype));
  const size_t offset = static_cast<size_t>(index) * size;
  const auto words = std::bit_cast<std::array<std::byte, 4>>(pattern.word);
  std::array<std::byte, 8> bytes{};
  for (size_t i = 0; i < size; ++i) bytes[i] = words[(offset + i) % 4];
  if (row.exact)
    return std::equal(bytes.begin(), bytes.begin() + static_cast<long>(size),
                      row.bytes.begin() + static_cast<long>(offset));
  const double wanted = load_number(row.dtype, bytes.data());
  const double value = row.at(index);
  if (std::isnan(wanted)) return false;  // any NaN prints the same
  return std::abs(value - wanted) <= 2e-4 * std::abs(wanted);
}

// The longest run of a pattern.
Range longest_run(const Row& row, const Pattern& pattern) {
  Range best, run;
  for (int64_t i = 0; i < row.count(); ++i) {
    if (!matches(row, i, pattern)) {
      run = {i + 1, i + 1};
      continue;
    }
    run.end = i + 1;
    if (run.end - run.begin > best.end - best.begin) best = run;
  }
  return best;
}

// Binary exponents of the numbers that have one, sorted.
std::vector<int> exponents_of(const Row& row, Range range) {
  std::vector<int> exponents;
  for (int64_t i = range.begin; i < range.end; ++i) {
    const double value = row.at(i);
    if (std::isfinite(value) && value != 0) exponents.push_back(std::ilogb(value));
  }
  std::ranges::sort(exponents);
  return exponents;
}

// From the first odd number to the last.
Range odd_range(const Exhibit& exhibit) {
  Range range;
  for (int64_t i = 0; i < exhibit.row.count(); ++i) {
    if (exhibit.odd[static_cast<size_t>(i)] == 0) continue;
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
  return range;
}

}  // namespace

int spread_of(const Row& row, Range range) {
  const std::vector<int> exponents = exponents_of(row, range);
  if (exponents.size() < 6) return 0;
  const size_t tenth = exponents.size() / 10;
  return exponents[exponents.size() - 1 - tenth] - exponents[tenth];
}

std::optional<Match> detect_poison(const Exhibit& exhibit) {
  const Row& row = exhibit.row;
  const int64_t least = std::max<int64_t>(16 / size_bytes(row.dtype), 2);
  std::optional<Match> best;
  int64_t best_length = 0;
  for (const Pattern& pattern : kPatterns) {
    const Range run = longest_run(row, pattern);
    const int64_t length = run.end - run.begin;
    if (length < least || length <= best_length) continue;
    best_length = length;
    best = Match{Kind::kPoison,
                 0.97,
                 {run},
                 fmt::format("{} numbers in a row are {} {:#010x}, {}", length,
                             row.exact ? "the bytes of" : "about", pattern.word, pattern.whose)};
  }
  return best;
}

std::optional<Match> detect_saturated(const Exhibit& exhibit) {
  const Row& row = exhibit.row;
  Match match;
  match.kind = Kind::kSaturated;
  match.score = 0.9;
  int64_t at_limit = 0, infinite = 0, beyond_fp16 = 0;
  for (int64_t i = 0; i < row.count(); ++i) {
    const double value = row.at(i);
    const bool limit = std::abs(value) == kHalfLimit && (value > 0 || !masks(exhibit.checkpoint));
    // In fp16 itself the next step is infinity.
    const bool beyond =
        row.dtype == DType::kF16 && std::isinf(value) && exhibit.odd[static_cast<size_t>(i)] != 0;
    // What fp16 does not have was never held to its limit.
    const double magnitude = std::abs(value);
    beyond_fp16 += std::isfinite(value) && magnitude > kHalfLimit / 2 &&
                   (magnitude > kHalfLimit || std::fmod(magnitude, 16) != 0) &&
                   !(masks(exhibit.checkpoint) && is_mask_value(value));
    if (!limit && !beyond) continue;
    at_limit += limit;
    infinite += beyond;
    if (!match.ranges.empty() && match.ranges.back().end == i)
      ++match.ranges.back().end;
    else
      match.ranges.push_back({i, i + 1});
  }
  if (at_limit == 0 || beyond_fp16 > 0 || row.dtype == DType::kBF16) return std::nullopt;
  match.evidence =
      fmt::format("{} numbers are exactly 65504 in magnitude, the largest of fp16{}", at_limit,
                  infinite > 0 ? fmt::format(", {} are infinite", infinite) : "");
  return match;
}

std::optional<Match> detect_overflow(const Exhibit& exhibit) {
  const Row& row = exhibit.row;
  const RowStats& stats = exhibit.stats;
  if (stats.plus_infinities + stats.minus_infinities + stats.nans == 0) return std::nullopt;
  // What squares to beyond the type's limit is on its way there.
  constexpr double kLarge[] = {1e150, 1e18, 8e3, 1e18};
  const double large = kLarge[static_cast<int>(row.dtype)];
  const Range whole = {0, row.count()};
  if (spread_of(row, whole) > kAllOver) return std::nullopt;
  const bool here = stats.largest >= large && stats.plus_infinities + stats.minus_infinities > 0;
  const bool before = exhibit.earlier_largest >= large;
  if (!here && !before) return std::nullopt;
  Match match;
  match.kind = Kind::kOverflow;
  match.score = 0.85;
  for (int64_t i = 0; i < row.count(); ++i)
    if (exhibit.odd[static_cast<size_t>(i)] != 0) match.ranges.push_back({i, i + 1});
  if (match.ranges.empty()) return std::nullopt;
  match.inherited = exhibit.earlier_non_finite;
  match.evidence =
      here ? fmt::format("{} infinities beside finite numbers up to {:.3g}, near the limit of {}",
                         stats.plus_infinities + stats.minus_infinities, stats.largest,
                         name(row.dtype))
           : fmt::format("{} NaN and {} infinities; '{}' before it reached {:.3g}", stats.nans,
                         stats.plus_infinities + stats.minus_infinities, exhibit.earlier_checkpoint,
                         exhibit.earlier_largest);
  return match;
}

std::optional<Match> detect_noise(const Exhibit& exhibit) {
  const Range range = odd_range(exhibit);
  const int64_t length = range.end - range.begin;
  if (length < 6) return std::nullopt;
  int64_t odd = 0;
  for (int64_t i = range.begin; i < range.end; ++i) odd += exhibit.odd[static_cast<size_t>(i)];
  const int spread = spread_of(exhibit.row, range);
  if (odd * 7 < length || spread <= kAllOver) return std::nullopt;
  return Match{Kind::kNoise,
               0.6,
               {range},
               fmt::format("the exponents of {} numbers are spread over {} binades, as those of "
                           "arbitrary bits are; numbers of a model stay within 15 or so",
                           length, spread)};
}

}  // namespace lockstep::forensics
