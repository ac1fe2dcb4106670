// Small vocabularies for tests and the fuzz target.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/vocab.h"

namespace lockstep::tokenizer {

inline TokenId add_token(Vocab& vocab, std::string text, TokenType type = TokenType::kNormal,
                         float score = 0) {
  vocab.tokens.push_back(std::move(text));
  vocab.types.push_back(type);
  if (vocab.family != Family::kBytePairs) vocab.scores.push_back(score);
  return static_cast<TokenId>(vocab.tokens.size() - 1);
}

// Bytes 0 to 255, then a few merges and special tokens.
inline Vocab small_byte_pairs(const std::string& pre = "gpt-2") {
  Vocab vocab;
  vocab.origin = "small";
  vocab.pre = pre;
  const ByteAlphabet alphabet;
  for (int byte = 0; byte < 256; ++byte)
    add_token(vocab, alphabet.text_of(static_cast<uint8_t>(byte)));
  const std::pair<const char*, const char*> merges[] = {
      {"h", "e"}, {"l", "l"},   {"he", "ll"}, {"hell", "o"}, {"Ġ", "w"},  {"o", "r"},
      {"l", "d"}, {"Ġw", "or"}, {"Ġ", "Ġ"},   {"a", "a"},    {"aa", "aa"}};
  for (const auto& [left, right] : merges) {
    vocab.merges.push_back(std::string(left) + " " + right);
    add_token(vocab, std::string(left) + right);
  }
  vocab.special.bos = add_token(vocab, "<bos>", TokenType::kControl);
  vocab.special.eos = add_token(vocab, "<|im_end|>", TokenType::kControl);
  add_token(vocab, "<tool>", TokenType::kUserDefined);
  add_token(vocab, "<tool><tool>", TokenType::kUserDefined);
  add_token(vocab, "[PAD]7", TokenType::kUnused);
  return vocab;
}

// <unk>, <s>, </s>, 256 byte tokens, then characters and words with scores.
inline Vocab small_sentence_pieces() {
  Vocab vocab;
  vocab.origin = "small";
  vocab.family = Family::kSentencePiece;
  add_token(vocab, "<unk>", TokenType::kUnknown);
  add_token(vocab, "<s>", TokenType::kControl);
  add_token(vocab, "</s>", TokenType::kControl);
  for (unsigned byte = 0; byte < 256; ++byte)
    add_token(vocab, fmt::format("<0x{:02X}>", byte), TokenType::kByte);
  float score = -1;
  for (const char* text :
       {"▁▁",   "▁he", "he", "ll", "llo", "▁hello", "▁w", "or", "ld", "▁world", "▁wor", "aa",
        "aaaa", "▁a",  "é",  "▁",  "h",   "e",      "l",  "o",  "w",  "r",      "d",    "a"})
    add_token(vocab, text, TokenType::kNormal, score--);
  add_token(vocab, "<|user|>", TokenType::kControl);
  add_token(vocab, "<tool>", TokenType::kUserDefined);
  return vocab;
}

// As T5 has it: <pad>, </s>, <unk>, then pieces with the logarithms of their probabilities.
inline Vocab small_unigram() {
  Vocab vocab;
  vocab.origin = "small";
  vocab.family = Family::kUnigram;
  vocab.add_space_prefix = true;
  add_token(vocab, "<pad>", TokenType::kControl);
  add_token(vocab, "</s>", TokenType::kControl);
  add_token(vocab, "<unk>", TokenType::kUnknown);
  const std::pair<const char*, float> pieces[] = {{"▁", -2},  {"a", -4},  {"b", -2},
                                                  {"ab", -6}, {"▁a", -3}, {"bb", -3}};
  for (const auto& [text, score] : pieces) add_token(vocab, text, TokenType::kNormal, score);
  add_token(vocab, "<tool>", TokenType::kUserDefined);
  return vocab;
}

}  // namespace lockstep::tokenizer
