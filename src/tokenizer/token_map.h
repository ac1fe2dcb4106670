// From a token's text to its id: a flat hash table, since 150,000 tokens are looked up hundreds of
// thousands of times while a file is loaded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tokenizer {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

class TokenMap {
 public:
  // `tokens` must outlive the map. Empty texts are left out; of equal texts the lowest id counts.
  explicit TokenMap(std::span<const std::string> tokens);

  TokenId find(std::string_view text) const;  // kNoToken where absent

 private:
  struct Slot {
    uint32_t tag = 0;  // upper half of the hash: most mismatches end here
    TokenId id = kNoToken;
  };

  std::span<const std::string> tokens_;
  std::vector<Slot> slots_;  // power of two, at most half full
  size_t longest_bytes_ = 0;
};

}  // namespace lockstep::tokenizer
