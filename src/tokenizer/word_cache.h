// Words repeat, so what a word became is looked up before it is encoded again.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <string_view>
#include <vector>

#include "tokenizer/token_map.h"

namespace lockstep::tokenizer {

// Lives for one text: an entry points into the text and into the output, so nothing is copied, its
// size is bounded, and threads share nothing.
class WordCache {
 public:
  explicit WordCache(size_t text_bytes)
      : slots_(std::bit_ceil(std::clamp<size_t>(text_bytes / 16, 1, kMostSlots))) {}

  // Appends the ids of `word`: those it had before, or what encode() appends now.
  template <class Encode>
  void append(std::string_view word, std::vector<TokenId>& out, const Encode& encode) {
    const size_t hash = std::hash<std::string_view>()(word);
    Slot& slot = slots_[hash & (slots_.size() - 1)];
    if (slot.word == word) {
      for (size_t i = 0; i < slot.count; ++i) out.push_back(TokenId{out[slot.first + i]});
      return;
    }
    const size_t first = out.size();
    encode();
    slot = {word, first, out.size() - first};
  }

 private:
  struct Slot {
    std::string_view word;  // words are not empty, so this is a free slot
    size_t first = 0;       // in the output
    size_t count = 0;
  };
  static constexpr size_t kMostSlots = size_t{1} << 15;

  std::vector<Slot> slots_;  // a word has one place; a newer one takes it over
};

}  // namespace lockstep::tokenizer
