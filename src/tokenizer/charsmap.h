// SentencePiece's table of texts and what they become ("precompiled_charsmap"): a double-array trie
// (the layout of darts-clone) and the texts that its values point to, each with a 0 at its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::tokenizer {

class Charsmap {
 public:
  // The bytes: the trie's length in bytes (four, little endian), the trie, the texts. Any bytes are
  // safe: what points outside is no entry.
  static Result<Charsmap> read(std::string_view bytes, const std::string& source);

  struct Entry {
    size_t length;  // bytes of the text that the entry is for
    std::string_view becomes;
  };
  // The shortest, or the longest, entry that `text` begins with.
  std::optional<Entry> shortest(std::string_view text) const { return find(text, false); }
  std::optional<Entry> longest(std::string_view text) const { return find(text, true); }
  size_t longest_becomes() const;  // bytes

 private:
  std::optional<Entry> find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace lockstep::tokenizer
