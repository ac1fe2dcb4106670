// The bytes of a row seen as something else: words, addresses, text.
#pragma once

#include <cstdint>
#include <string>

#include "forensics/source.h"

namespace lockstep::forensics {

inline constexpr double kHalfLimit = 65504;  // the largest number of fp16

// The 8-byte word that starts `index` words into the row.
uint64_t word_at(const Row& row, int64_t index);
int64_t words_in(const Row& row);

// What kind of user-space address a word can be, by where Linux puts things (x86-64 and AArch64).
enum class Region {
  kNone,
  kHeap,    // brk heap and image of a position-independent program: 0x55.., 0x56.., 0xaaaa..
  kMapped,  // mappings, libraries, stacks, thread arenas: 0x7e.., 0x7f.., 0xffff..
};
Region region_of(uint64_t word);

// glibc since 2.32 stores a free-list link as (address of the link >> 12) ^ link. A link and its
// place lie close together, so their upper bits are the same and the link can be had back, exactly
// where both are in the same 4 KiB page.
uint64_t unmask_link(uint64_t stored);
// Whether a word is a masked null link: the place of a chunk shifted by 12, which ends a list.
bool is_masked_null(uint64_t word);

// The longest stretch of printable ASCII, mostly letters and spaces.
struct TextRun {
  int64_t begin = 0;  // byte
  int64_t length = 0;
};
TextRun longest_text(const Row& row);
inline constexpr int64_t kTextBytes = 32;  // shorter ones can be chance

}  // namespace lockstep::forensics
