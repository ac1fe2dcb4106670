// Text to token ids and back, as the model's file defines it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"
#include "tokenizer/token_map.h"
#include "tokenizer/vocab.h"

namespace lockstep::tokenizer {

struct EncodeOptions {
  bool add_special = true;    // BOS and EOS where the file asks for them
  bool parse_special = true;  // recognize control tokens such as <|im_end|> in the text
};

class Tokenizer {
 public:
  // Error where the file has no tokenizer, or one that is not known (named in the message).
  static Result<std::unique_ptr<Tokenizer>> load(const gguf::File& file);
  static Result<std::unique_ptr<Tokenizer>> create(Vocab vocab);
  virtual ~Tokenizer() = default;

  // Any bytes, valid UTF-8 or not.
  virtual std::vector<TokenId> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const = 0;

  // The bytes of one token. Control tokens give their text only where `special` is set; padding
  // and ids outside the vocabulary give nothing.
  virtual std::string piece(TokenId id, bool special = false) const = 0;

  // The bytes of a sequence; the space that SentencePiece puts before a text is removed. For
  // byte-level vocabularies this gives back what was encoded, byte for byte.
  virtual std::string decode(const std::vector<TokenId>& ids, bool special = false) const = 0;

  virtual int64_t size() const = 0;                     // number of tokens
  virtual std::string_view text(TokenId id) const = 0;  // as stored in the file
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  virtual bool ends_generation(TokenId id) const = 0;  // EOS, end of turn, and their like
  virtual TokenType type(TokenId id) const = 0;        // undefined for ids outside the vocabulary
  virtual bool adds_bos() const = 0;                   // encode() begins with BOS
  virtual bool adds_space() const = 0;                 // SentencePiece's space before a text
};

// Turns tokens into text as they come, holding back bytes until a UTF-8 character is whole. The
// text is always UTF-8: what can never become a character is U+FFFD at once.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::string push(TokenId id);  // what can be shown now
  std::string finish();          // what is left; an incomplete character becomes U+FFFD
  bool holds() const { return !pending_.empty(); }

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
  bool first_ = true;  // no text yet
};

}  // namespace lockstep::tokenizer
