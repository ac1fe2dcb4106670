// A text on its way to the model of a tokenizer.json: added tokens are found, the rest is
// normalized and cut into pieces. The order is that of the hub's library.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/rules.h"
#include "tokenizer/special_tokens.h"

namespace lockstep::tokenizer {

class Pipeline {
 public:
  // Ids from `tokens` on, which the vocabulary lacks, are not looked for. `rules` must outlive it.
  Pipeline(const Rules& rules, int64_t tokens);

  // The fragments point into `text` and `made`.
  std::vector<Fragment> run(std::string_view text, bool parse_special,
                            std::deque<std::string>& made) const;

 private:
  // The texts to look for, as a tree of bytes.
  struct Finder {
    struct Node {
      std::vector<std::pair<uint8_t, int32_t>> children;  // byte, node
      const AddedToken* token = nullptr;
    };
    std::vector<Node> nodes = std::vector<Node>(1);

    void add(std::string_view text, const AddedToken& token);
    // Of the tokens that begin at the start of `text` the longest; its bytes.
    const AddedToken* longest(std::string_view text, size_t& size) const;
    std::vector<Fragment> split(std::string_view text, bool parse_special) const;
  };

  bool keeps_first(std::string_view text) const;

  const Rules& rules_;
  Finder raw_, normalized_;
};

}  // namespace lockstep::tokenizer
