#include "tokenizer/token_map.h"

#include <algorithm>
#include <bit>

#include <xxhash.h>

namespace lockstep::tokenizer {
namespace {

uint64_t hash_of(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace

TokenMap::TokenMap(std::span<const std::string> tokens)
    : tokens_(tokens), slots_(std::bit_ceil(tokens.size() * 2 + 1)) {
  const size_t mask = slots_.size() - 1;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string& text = tokens[id];
    if (text.empty()) continue;
    const uint64_t hash = hash_of(text);
    const auto tag = static_cast<uint32_t>(hash >> 32);
    size_t at = hash & mask;
    bool duplicate = false;
    for (; slots_[at].id != kNoToken; at = (at + 1) & mask) {
      if (slots_[at].tag == tag && tokens[static_cast<size_t>(slots_[at].id)] == text) {
        duplicate = true;
        break;
      }
    }
    if (!duplicate) slots_[at] = {tag, static_cast<TokenId>(id)};
    longest_bytes_ = std::max(longest_bytes_, text.size());
  }
}

TokenId TokenMap::find(std::string_view text) const {
  if (text.size() > longest_bytes_) return kNoToken;
  const uint64_t hash = hash_of(text);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at].id != kNoToken; at = (at + 1) & mask) {
    if (slots_[at].tag == tag && tokens_[static_cast<size_t>(slots_[at].id)] == text)
      return slots_[at].id;
  }
  return kNoToken;
}

}  // namespace lockstep::tokenizer
