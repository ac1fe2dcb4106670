// Unigram: of all ways to write a text as tokens, the one whose scores (logarithms of
// probabilities) have the largest sum. What no token covers is unknown: a stretch of it becomes
// bytes where the vocabulary has them and says so, else one unknown token.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tokenizer/charsmap.h"
#include "tokenizer/encoder.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"
#include "tokenizer/word_cache.h"

namespace lockstep::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10;  // below the worst score, as SentencePiece has it

// All tokens that a text begins with. The ids are sorted by their texts, so those that share a
// beginning stand together.
class Prefixes {
 public:
  Prefixes(std::span<const std::string> tokens, std::vector<TokenId> ids)
      : tokens_(tokens), ids_(std::move(ids)) {
    std::ranges::stable_sort(ids_, [&](TokenId a, TokenId b) { return text(a) < text(b); });
  }

  // Calls found(id, bytes), the shortest first. Of equal texts the last counts.
  template <class Found>
  void visit(std::string_view input, const Found& found) const {
    auto low = ids_.begin(), high = ids_.end();
    for (size_t depth = 0; depth < input.size(); ++depth) {
      const auto byte = static_cast<unsigned char>(input[depth]);
      const auto at = [&](TokenId id) { return static_cast<unsigned char>(text(id)[depth]); };
      low = std::lower_bound(low, high, byte, [&](TokenId id, int b) { return at(id) < b; });
      high = std::upper_bound(low, high, byte, [&](int b, TokenId id) { return b < at(id); });
      TokenId exact = kNoToken;
      while (low != high && text(*low).size() == depth + 1) exact = *low++;
      if (exact != kNoToken) found(exact, depth + 1);
      if (low == high) return;
    }
  }

 private:
  std::string_view text(TokenId id) const { return tokens_[static_cast<size_t>(id)]; }

  std::span<const std::string> tokens_;
  std::vector<TokenId> ids_;
};

// A best way to the place where it stands.
struct Way {
  double score = -std::numeric_limits<double>::infinity();
  TokenId id = kNoToken;
  size_t from = 0;
};

// Without rules as llama.cpp has it: what may occur in a text.
bool is_of_texts(TokenType type) {
  return type == TokenType::kNormal || type == TokenType::kUserDefined ||
         type == TokenType::kUnused;
}

std::vector<TokenId> ids_of_model(const Vocab& vocab) {
  std::vector<TokenId> ids;
  const std::vector<bool> of_texts = tokens_of_texts(vocab);
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const bool taken = vocab.rules ? of_texts[id] : is_of_texts(vocab.types[id]);
    if (taken && !vocab.tokens[id].empty()) ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

class UnigramEncoder final : public Encoder {
 public:
  UnigramEncoder(const Vocab& vocab, const TokenMap& map)
      : vocab_(vocab), map_(map), prefixes_(vocab.tokens, ids_of_model(vocab)) {
    double worst = std::numeric_limits<double>::infinity();
    for (const TokenId id : ids_of_model(vocab))
      if (vocab.rules || vocab.types[static_cast<size_t>(id)] == TokenType::kNormal)
        worst = std::min(worst, score(id));
    unknown_score_ = (std::isinf(worst) ? 0 : worst) - kUnknownPenalty;
    bool all = vocab.rules && vocab.rules->byte_fallback;
    for (unsigned byte = 0; byte < 256 && all; ++byte) {
      bytes_.push_back(map.find(fmt::format("<0x{:02X}>", byte)));
    }
  }

  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& out) const override {
    size_t bytes = 0;
    for (const Fragment& fragment : fragments) bytes += fragment.text.size();
    WordCache cache(bytes);
    std::vector<Way> ways;
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment.token);
      } else if (vocab_.rules) {
        cache.append(fragment.text, out, [&] { encode_piece(fragment.text, ways, out); });
      } else {
        encode_piece(as_pieces(fragment.text), ways, out);
      }
    }
  }

  std::string bytes_of(std::string_view token_text) const override {
    std::string bytes;
    for (size_t at = 0; at < token_text.size();) {
      const bool mark = token_text.substr(at).starts_with(kSpaceMark);
      bytes += mark ? ' ' : token_text[at];
      at += mark ? kSpaceMark.size() : 1;
    }
    return bytes;
  }

 private:
  double score(TokenId id) const {
    const auto index = static_cast<size_t>(id);
    if (!vocab_.rules && vocab_.types[index] == TokenType::kUserDefined) return 0;
    return vocab_.exact_scores.empty() ? static_cast<double>(vocab_.scores[index])
                                       : vocab_.exact_scores[index];
  }

  void encode_piece(std::string_view text, std::vector<Way>& ways,
                    std::vector<TokenId>& out) const {
    if (text.empty()) return;
    ways.assign(text.size() + 1, Way());
    ways[0].score = 0;
    for (size_t at = 0; at < text.size();) {
      const double here = ways[at].score;
      const size_t character = utf8_step(text.substr(at)).length;
      bool whole = false;  // the character is a token
      const auto reach = [&](size_t end, TokenId id, double sum) {
        Way& way = ways[end];
        if (way.id == kNoToken || sum > way.score) way = {sum, id, at};
      };
      prefixes_.visit(text.substr(at), [&](TokenId id, size_t size) {
        reach(at + size, id, here + score(id));
        whole |= size == character;
      });
      if (!whole) reach(at + character, *vocab_.special.unknown, here + unknown_score_);
      at += character;
    }
    append(text, ways, out);
  }

  // From the end to the start, as the ways lead; neighbours that are unknown are one.
  void append(std::string_view text, const std::vector<Way>& ways,
              std::vector<TokenId>& out) const {
    struct Part {
      TokenId id;
      size_t begin, end;
    };
    std::vector<Part> parts;
    const TokenId unknown = *vocab_.special.unknown;
    for (size_t end = text.size(); end > 0; end = ways[end].from) {
      const Way& way = ways[end];
      if (way.id == unknown && !parts.empty() && parts.back().id == unknown)
        parts.back().begin = way.from;
      else
        parts.push_back({way.id, way.from, end});
    }
    for (size_t i = parts.size(); i-- > 0;) {
      const Part& part = parts[i];
      if (part.id == unknown)
        append_unknown(text.substr(part.begin, part.end - part.begin), out);
      else
        out.push_back(part.id);
    }
  }

  void append_unknown(std::string_view text, std::vector<TokenId>& out) const {
    const auto has_byte = [&](char c) { return bytes_[static_cast<uint8_t>(c)] != kNoToken; };
    // The unknown token's own text is no unknown text.
    const bool token = map_.find(text) == *vocab_.special.unknown;
    if (token || bytes_.empty() || !std::ranges::all_of(text, has_byte)) {
      out.push_back(*vocab_.special.unknown);
      return;
    }
    for (const char c : text) out.push_back(bytes_[static_cast<uint8_t>(c)]);
  }

  // What llama.cpp does to a text before: the file's table of characters, marks for spaces.
  std::string as_pieces(std::string_view text) const {
    const std::string_view space = vocab_.escape_spaces ? kSpaceMark : " ";
    const bool merge = vocab_.merge_spaces;
    bool prefix = vocab_.add_space_prefix.value_or(false), in_word = false;
    std::string out;
    while (!text.empty()) {
      size_t used = 0;
      for (const char c : character(text, used)) {
        if (c == ' ') {
          in_word = false;
          if (!merge) out += space;
          continue;
        }
        if (!in_word && (prefix || merge)) {
          out += space;
          prefix = false;
        }
        in_word = true;
        out += c;
      }
      text.remove_prefix(used);
    }
    return out;
  }

  std::string_view character(std::string_view text, size_t& used) const {
    if (const auto entry = vocab_.charsmap ? vocab_.charsmap->longest(text) : std::nullopt) {
      used = entry->length;
      return entry->becomes;
    }
    const Utf8Step step = utf8_step(text);
    used = step.state == Utf8::kWhole ? step.length : 1;
    return step.state == Utf8::kWhole ? text.substr(0, used) : kReplacement;
  }

  const Vocab& vocab_;
  const TokenMap& map_;
  Prefixes prefixes_;
  double unknown_score_ = 0;
  std::vector<TokenId> bytes_;  // [byte]; empty where there is no fallback
};

}  // namespace

std::unique_ptr<Encoder> make_unigram_encoder(const Vocab& vocab, const TokenMap& map) {
  return std::make_unique<UnigramEncoder>(vocab, map);
}

}  // namespace lockstep::tokenizer
