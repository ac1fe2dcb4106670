// A vocabulary as plain data: what a GGUF file says about its tokenizer, checked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/rules.h"
#include "tokenizer/token_map.h"

namespace lockstep::tokenizer {

// The values are the numbers in the file.
enum class TokenType : uint8_t {
  kUndefined,
  kNormal,
  kUnknown,      // stands for what the vocabulary cannot express
  kControl,      // <|im_end|>: recognized only where special tokens are parsed, not shown
  kUserDefined,  // <tool_call>: recognized always, shown
  kUnused,       // padding up to a round vocabulary size
  kByte,         // <0x0A>
};
inline constexpr int64_t kTokenTypes = 7;

enum class Family : uint8_t { kBytePairs, kSentencePiece, kUnigram };

// Ids of tokens with a role, where the file names them.
struct SpecialIds {
  std::optional<TokenId> bos, eos, eot, eom, unknown;
  std::optional<TokenId> fim_pad, fim_repo, fim_separator;  // end generation, too
};

struct Vocab {
  std::string origin;      // file name for messages
  std::string model_name;  // general.name
  Family family = Family::kBytePairs;
  std::string pre;  // name of the pre-tokenizer; byte pairs only

  std::vector<std::string> tokens;  // [id] text; may be empty (padding) or repeated
  std::vector<TokenType> types;     // [id]; all normal where the file has none
  std::vector<float> scores;        // [id]; SentencePiece and Unigram only
  std::vector<std::string> merges;  // "left right", best first; byte pairs only

  SpecialIds special;
  // Absent where the file does not say; the family and the pre-tokenizer have defaults.
  std::optional<bool> add_bos, add_eos, add_space_prefix;

  // Of a folder, or a file that was converted from one: what its tokenizer.json does, in place of
  // what llama.cpp does with such a vocabulary.
  std::shared_ptr<const Rules> rules;
  std::vector<double> exact_scores;  // of Unigram, where `scores` are rounded

  // Of Unigram without rules.
  std::optional<Charsmap> charsmap;
  bool merge_spaces = false, escape_spaces = true;
};

// [id] whether texts are split into the token; others are only looked for as a whole, or never.
std::vector<bool> tokens_of_texts(const Vocab& vocab);

// Error where the file has no tokenizer, or one of a model that is not known.
Result<Vocab> read_vocab(const gguf::File& file);

// Lengths, ids and types agree. read_vocab() has checked its result already.
Result<void> check_vocab(const Vocab& vocab);

}  // namespace lockstep::tokenizer
