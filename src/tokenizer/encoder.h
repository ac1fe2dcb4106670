// What the families of vocabularies share: fragments of text in, ids out.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/token_map.h"
#include "tokenizer/vocab.h"

namespace lockstep::tokenizer {

class Encoder {
 public:
  virtual ~Encoder() = default;

  // Appends the ids of the fragments. Safe from several threads.
  virtual void encode(std::span<const Fragment> fragments, std::vector<TokenId>& out) const = 0;

  // The bytes that a normal token stands for, from its text in the file.
  virtual std::string bytes_of(std::string_view token_text) const = 0;
};

// All keep references: `vocab` (but for its merges) and `map` must outlive the encoder.
Result<std::unique_ptr<Encoder>> make_byte_pair_encoder(const Vocab& vocab, const TokenMap& map);
std::unique_ptr<Encoder> make_sentence_piece_encoder(const Vocab& vocab, const TokenMap& map,
                                                     bool add_space_prefix);
// Needs vocab.special.unknown.
std::unique_ptr<Encoder> make_unigram_encoder(const Vocab& vocab, const TokenMap& map);

}  // namespace lockstep::tokenizer
