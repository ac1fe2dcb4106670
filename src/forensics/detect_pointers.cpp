// Words that are addresses: links of the allocator, other pointers, pointers to device memory.
#include <algorithm>
#include <cmath>

#include "forensics/bits.h"
#include "forensics/detectors.h"

namespace lockstep::forensics {
namespace {

// Numbers that an 8-byte word takes up.
int64_t per_word(const Row& row) {
  return 8 / size_bytes(row.dtype);
}

Range range_of_words(const Row& row, int64_t begin, int64_t end) {
  return {begin * per_word(row), std::min(end * per_word(row), row.count())};
}

bool any_odd(const Exhibit& exhibit, Range range) {
  for (int64_t i = range.begin; i < range.end; ++i)
    if (exhibit.odd[static_cast<size_t>(i)] != 0) return true;
  return false;
}

// Most of what follows the two words of a free chunk is data that nobody has touched.
bool rest_is_sound(const Exhibit& exhibit) {
  const Range head = range_of_words(exhibit.row, 0, 2);
  const int64_t end = std::min(exhibit.row.count(), head.end + 32);
  int64_t odd = 0;
  for (int64_t i = head.end; i < end; ++i) odd += exhibit.odd[static_cast<size_t>(i)];
  return odd * 4 <= end - head.end && spread_of(exhibit.row, {head.end, end}) <= kAllOver;
}

// A row that fills its chunk ends in the word where glibc keeps the size of a free chunk for the
// chunk after it.
bool ends_in_chunk_size(const Row& row) {
  if (row.bytes.size() % 16 != 8 || words_in(row) < 4) return false;
  const uint64_t last = word_at(row, words_in(row) - 1);
  return last >= 32 && last < (uint64_t{1} << 32) && last % 16 == 0 &&
         last >= row.bytes.size() / 16 * 16;
}

// A value that printing turned into 0.0: the upper half of any address is a denormal as f32.
bool prints_as_zero(double value) {
  return std::abs(value) < 1e-38;
}

// Logs that were written with few digits show 0.0 where the upper half of an address was. The lower
// half is whatever it is: most often far from the scale of the row. The second word is a link of
// the same kind, the tcache's random key, or still the row's own.
std::optional<Match> detect_printed(const Exhibit& exhibit) {
  const Row& row = exhibit.row;
  if (row.dtype != DType::kF32 || row.count() < 6 || !prints_as_zero(row.at(1)))
    return std::nullopt;
  const double low = row.at(0);
  const bool link = exhibit.odd[0] != 0 && !is_denormal(row.dtype, low);
  const bool key = exhibit.odd[2] != 0 || exhibit.odd[3] != 0;
  if (!link && !key) return std::nullopt;
  // Zeros must be unusual here, but for the size of a free chunk, which prints as zeros too.
  const bool filled = row.bytes.size() % 16 == 8;
  const int64_t end = std::min<int64_t>(row.count() - (filled ? 2 : 0), 64);
  int64_t zeros = 0;
  for (int64_t i = 4; i < end; ++i) zeros += row.at(i) == 0;
  if (zeros * 4 > end - 4) return std::nullopt;
  const bool second = prints_as_zero(row.at(3)) && row.at(2) != 0;
  const bool twins = second && row.at(2) == low;
  Match match;
  match.kind = Kind::kFreeList;
  match.score = twins ? 0.96 : second ? 0.92 : link ? 0.88 : 0.8;
  match.ranges = {{0, second || key ? 4 : 2}};
  match.evidence = fmt::format(
      "values 0-1 are one 8-byte word: the lower half of an address reads as {:g}, the upper half "
      "prints as {:g}",
      low, row.at(1));
  if (twins)
    match.evidence +=
        "; values 2-3 are the same word again: forward and backward link of a chunk alone in the "
        "unsorted bin";
  else if (second)
    match.evidence += fmt::format("; values 2-3 are a second word of that kind ({:g}, {:g})",
                                  row.at(2), row.at(3));
  else if (key)
    match.evidence +=
        fmt::format("; values 2-3 are an arbitrary word ({:g}, {:g})", row.at(2), row.at(3));
  match.evidence += fmt::format("; from value {} on the row is in scale", match.ranges[0].end);
  return match;
}

std::string_view where(Region region) {
  return region == Region::kHeap ? "heap" : "mapping";
}

}  // namespace

std::optional<Match> detect_free_list(const Exhibit& exhibit) {
  const Row& row = exhibit.row;
  if (words_in(row) < 2 || row.count() <= 2 * per_word(row) || !rest_is_sound(exhibit))
    return std::nullopt;
  const Range first = range_of_words(row, 0, 1), second = range_of_words(row, 1, 2);
  const uint64_t link = word_at(row, 0), other = word_at(row, 1);
  const bool aligned = !row.exact || link % 16 == 0;
  const Region region = region_of(link), other_region = region_of(other);
  Match match;
  match.kind = Kind::kFreeList;
  match.ranges = {first};
  const bool both = any_odd(exhibit, second);
  if (region != Region::kNone && link == other && aligned) {
    match.score = 0.99;
    match.ranges = {{first.begin, second.end}};
    match.evidence = fmt::format(
        "the first two words are the same address, {:#x}: forward and backward link of a chunk "
        "alone in the unsorted bin (its list head is in the {})",
        link, where(region));
  } else if (region != Region::kNone && other_region != Region::kNone && aligned) {
    match.score = 0.97;
    match.ranges = {{first.begin, second.end}};
    match.evidence = fmt::format(
        "the first two words are addresses, {:#x} and {:#x}: forward and backward link of a free "
        "chunk, or a tcache link and its key (glibc before 2.32)",
        link, other);
  } else if (is_masked_null(link) && row.exact) {
    match.score = both ? 0.95 : 0.9;
    if (both) match.ranges = {{first.begin, second.end}};
    match.evidence = fmt::format(
        "the first word, {:#x}, is a safe-linked null: the chunk lies at {:#x}000 to {:#x}fff and "
        "ends its free list (glibc 2.32 or later)",
        link, link, link);
  } else if (region != Region::kNone) {
    const uint64_t target = unmask_link(link);
    const bool masked = row.exact && region_of(target) == region && target % 16 == 0 && !aligned;
    match.score = masked ? 0.95 : aligned ? 0.91 : 0.87;
    if (both) match.ranges = {{first.begin, second.end}};
    if (masked)
      match.evidence = fmt::format(
          "the first word, {:#x}, is a safe-linked pointer (glibc 2.32 or later) to {:#x}, a "
          "16-byte aligned {} address",
          link, target, where(region));
    else if (aligned && row.exact)
      match.evidence = fmt::format(
          "the first word, {:#x}, is a 16-byte aligned {} address: the link of a free list", link,
          where(region));
    else
      match.evidence = fmt::format("the first word, about {:#x}, is in the range of {} addresses",
                                   link, where(region));
  } else {
    return detect_printed(exhibit);
  }
  // A lone word whose halves both pass for numbers proves nothing.
  if (!any_odd(exhibit, match.ranges[0])) return std::nullopt;
  match.evidence += fmt::format("; from value {} on the row is in scale", match.ranges[0].end);
  if (ends_in_chunk_size(row)) {
    const int64_t last = words_in(row) - 1;
    match.ranges.push_back(range_of_words(row, last, last + 1));
    match.evidence +=
        fmt::format(", up to the last word, {}: the size of the free chunk", word_at(row, last));
  }
  return match;
}

std::optional<Match> detect_addresses(const Exhibit& exhibit) {
  const Row& row = exhibit.row;
  Match match;
  int64_t words = 0, device = 0, telling = 0;
  std::string shown;
  for (int64_t i = 0; i < words_in(row); ++i) {
    const Range range = range_of_words(row, i, i + 1);
    if (!any_odd(exhibit, range)) continue;
    const uint64_t word = word_at(row, i);
    const Region region = region_of(word);
    // Device memory is handed out at multiples of 512, in the range of mappings or low windows.
    const bool low_window = word >> 32 >= 2 && word >> 32 < 0x50;
    const bool on_device =
        row.exact && word % 512 == 0 && (region == Region::kMapped || low_window);
    if (region == Region::kNone && !on_device) continue;
    ++words;
    device += on_device;
    // The upper half is a denormal in any case; the lower half of true numbers is in scale.
    const double lower = row.at(range.begin);
    telling +=
        !std::isfinite(lower) || is_huge(lower, exhibit.scale) || is_denormal(row.dtype, lower);
    if (words <= 4) shown += fmt::format("{}{:#x}", words > 1 ? ", " : "", word);
    if (!match.ranges.empty() && match.ranges.back().end == range.begin)
      match.ranges.back().end = range.end;
    else
      match.ranges.push_back(range);
  }
  if (words == 0 || (words == 1 && telling == 0)) return std::nullopt;
  // Among much other garbage a single word can be an address by chance.
  const int64_t odd = std::count(exhibit.odd.begin(), exhibit.odd.end(), uint8_t{1});
  if (words == 1 && odd > per_word(row) + 4) return std::nullopt;
  const bool all_device = device == words;
  match.kind = all_device ? Kind::kDevicePointer : Kind::kAddress;
  match.score = (words > 1 ? 0.86 : 0.8) + (all_device ? 0.06 : 0);
  match.evidence = fmt::format("{} of the row's 8-byte words {}: {}{}", words,
                               all_device ? "are multiples of 512 where device memory is mapped"
                                          : "are in the ranges of heap, mappings and stacks",
                               shown, words > 4 ? ", ..." : "");
  return match;
}

}  // namespace lockstep::forensics
