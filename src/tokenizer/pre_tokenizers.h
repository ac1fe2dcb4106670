// How byte-pair vocabularies want text cut into words before merging: a row a pre-tokenizer.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep::tokenizer {

struct PreTokenizer {
  std::span<const std::string_view> names;  // values of tokenizer.ggml.pre
  // Applied one after the other: each cuts the pieces that the one before it left into its matches
  // and what lies between them.
  std::span<const std::string_view> patterns;
  bool whole_words = false;  // a word that is a token is that token, whatever the merges say
  bool add_bos = false;      // where the file does not say
};

const PreTokenizer* find_pre_tokenizer(std::string_view name);  // nullptr where unknown

std::string known_pre_tokenizers();  // comma-separated, for messages

}  // namespace lockstep::tokenizer
