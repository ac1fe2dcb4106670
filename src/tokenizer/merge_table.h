// From a pair of symbols to the symbol that they merge into: a flat hash table, asked for every
// pair of neighbours in a text.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace lockstep::tokenizer {

struct Merge {
  uint64_t pair = ~uint64_t{0};  // left << 32 | right; all ones: a free slot
  int32_t rank = -1;             // lower merges first
  int32_t merged = -1;
};

class MergeTable {
 public:
  explicit MergeTable(size_t merges) : slots_(std::bit_ceil(merges * 2 + 1)) {}

  // At most as many as announced. Of equal pairs the first counts.
  void add(int32_t left, int32_t right, int32_t rank, int32_t merged) {
    Merge& slot = slots_[place(key(left, right))];
    if (slot.rank < 0) slot = {key(left, right), rank, merged};
  }

  // A free slot (rank below 0) where the pair does not merge.
  const Merge& find(int32_t left, int32_t right) const { return slots_[place(key(left, right))]; }

 private:
  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  size_t place(uint64_t pair) const {
    const size_t mask = slots_.size() - 1;
    const uint64_t mixed = pair * 0x9e3779b97f4a7c15u;
    size_t at = (mixed ^ (mixed >> 32)) & mask;
    while (slots_[at].rank >= 0 && slots_[at].pair != pair) at = (at + 1) & mask;
    return at;
  }

  std::vector<Merge> slots_;  // power of two, at most half full
};

}  // namespace lockstep::tokenizer
