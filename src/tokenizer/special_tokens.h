// Tokens that are more than text: which ones end generation, which are recognized in text, and the
// pieces that a text is cut into around them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/token_map.h"
#include "tokenizer/vocab.h"

namespace lockstep::tokenizer {

// A stretch of the text, or a special token that was found in it.
struct Fragment {
  std::string_view text;
  TokenId token = kNoToken;  // kNoToken: plain text
};

class SpecialTokens {
 public:
  // Corrects `vocab.types` where the text of a token tells more than its type: files often mark
  // <|im_end|> and its like as normal or user-defined. The vocabulary must outlive the object.
  SpecialTokens(Vocab& vocab, const TokenMap& map);

  bool ends_generation(TokenId id) const { return ends_[static_cast<size_t>(id)]; }

  // Cuts `text` at user-defined tokens, and with `parse_special` at control and unknown tokens too.
  // Longer tokens are cut out first, wherever they stand.
  std::vector<Fragment> split(std::string_view text, bool parse_special) const;

 private:
  // A tree over the texts of the recognizable tokens, to learn in one pass which of them occur.
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;  // byte, node
    int32_t row = -1;                                   // in recognized_, where a token ends
  };
  struct Recognized {
    std::string_view text;
    TokenId id;
    bool always;       // user-defined: also where special tokens are not parsed
    bool strip_after;  // white space after it belongs to it
  };

  void correct_types(Vocab& vocab, const TokenMap& map);
  void collect_ends(const Vocab& vocab, const TokenMap& map);
  void build_tree();
  std::vector<bool> occurring(std::string_view text) const;

  std::vector<bool> ends_;              // [id]
  std::vector<Recognized> recognized_;  // longest first
  std::vector<Node> tree_;
  std::vector<int32_t> roots_ = std::vector<int32_t>(256, -1);  // [first byte] node
};

}  // namespace lockstep::tokenizer
