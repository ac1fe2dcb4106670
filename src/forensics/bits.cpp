#include "forensics/bits.h"

#include <algorithm>
#include <array>

namespace lockstep::forensics {
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
