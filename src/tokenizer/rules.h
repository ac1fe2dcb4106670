// What tokenizer.json of a folder of the hub says beyond its vocabulary, as plain data. GGUF has no
// keys for it, so it goes in one of our own, as the JSON that it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "base/result.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/token_map.h"

namespace lockstep::tokenizer {

inline constexpr const char* kRulesKey = "tokenizer.lockstep.rules";

// A token that is found in a text before anything else is done with it.
struct AddedToken {
  std::string text;
  TokenId id = kNoToken;
  bool special = false;                            // found only where special tokens are parsed
  bool normalized = false;                         // found in the normalized text
  bool strip_before = false, strip_after = false;  // takes the white space there with it
};

// How a normalized text is cut into pieces, of vocabularies whose tokens are texts.
struct CutStep {
  enum class Kind : uint8_t { kMetaspace, kWhiteSpace, kDigits, kText };
  enum class Prefix : uint8_t { kNever, kFirst, kAlways };
  enum class Keep : uint8_t { kRemoved, kIsolated, kContiguous, kWithPrevious, kWithNext };
  Kind kind = Kind::kMetaspace;
  Prefix prefix = Prefix::kAlways;  // of a Metaspace: where a mark is put before a text
  bool split = true;                // of a Metaspace: every mark begins a piece
  Keep keep = Keep::kIsolated;      // of digits and texts: what becomes of the matches
  std::string text = {};            // the mark of a Metaspace; what a text is cut at
};

struct Rules {
  std::vector<AddedToken> added;
  Normalizer normalizer;
  bool byte_level = false;             // then the patterns that cut are those of tokenizer.ggml.pre
  bool prefix_space = false;           // of byte levels: a space before a text that has none
  std::vector<CutStep> cuts;           // of all others
  std::vector<TokenId> before, after;  // what stands around every text
  std::vector<TokenId> outside;        // added tokens that texts are never split into
  bool byte_fallback = false;          // what the vocabulary lacks becomes bytes
  bool fuse_unknown = false;           // of BPE: unknown characters side by side are one token
  std::optional<TokenId> unknown;      // of Unigram

  // Whether a text gets a mark of a space before it.
  bool adds_space() const;
  bool merges_spaces() const;  // runs of spaces count as one
};

// Of the whole tokenizer.json, or of what rules_json() kept. What is not known is an error that
// names the key.
Result<Rules> read_rules(const JsonReader& root);
struct AroundTexts {
  std::vector<TokenId> before, after;
};
std::string rules_json(const JsonReader& root, const AroundTexts& around,
                       const std::vector<TokenId>& outside);

}  // namespace lockstep::tokenizer
