// SentencePiece as Llama's tokenizer runs it: spaces become U+2581, the text falls into characters,
// and neighbours whose joined text is a token merge, best score first, leftmost first among equals.
// What is left without a token becomes bytes.
#include <algorithm>

#include "tokenizer/encoder.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_cache.h"

namespace lockstep::tokenizer {
namespace {

struct Piece {
  int64_t prev;
  int64_t next;
  int64_t begin;  // in the marked text
  int64_t size;   // bytes; 0 once merged into its left neighbour
};

struct PiecePair {
  float score;
  int64_t left;  // index of the left symbol
  int64_t size;  // of both when this was queued: else it is stale

  bool operator<(const PiecePair& other) const {  // heaps have the largest on top
    return score != other.score ? score < other.score : left > other.left;
  }
};

// The length that the first byte of a character announces. No check of what follows: stray bytes
// end up as byte tokens all the same.
int64_t announced_length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string replaced;
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != std::string::npos; done = at + from.size()) {
    replaced.append(text, done, at - done).append(to);
  }
  if (done == 0) return;
  replaced.append(text, done);
  text.swap(replaced);
}

class SentencePieceEncoder final : public Encoder {
 public:
  SentencePieceEncoder(const Vocab& vocab, const TokenMap& map, bool add_space_prefix)
      : vocab_(vocab),
        map_(map),
        add_space_prefix_(add_space_prefix),
        of_texts_(tokens_of_texts(vocab)) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      TokenId id = map.find(fmt::format("<0x{:02X}>", byte));
      const char c = static_cast<char>(byte);
      if (id == kNoToken) id = map.find({&c, 1});
      if (id == kNoToken && vocab.special.unknown) id = *vocab.special.unknown;
      byte_ids_.push_back(id);
    }
    for (const std::string& token : vocab.tokens) words_are_apart_ &= !crosses_words(token);
    if (vocab.rules) take_rules(*vocab.rules);
  }

  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& out) const override {
    bool after_special = true;  // the start of the text counts as such
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment.token);
        after_special = true;
        continue;
      }
      if (vocab_.rules) {  // the text has its marks
        encode_marked(loses_unknown_ ? without_unknown(fragment.text) : fragment.text, out);
        continue;
      }
      std::string marked = add_space_prefix_ && after_special ? " " : "";
      marked += fragment.text;
      replace_all(marked, " ", kSpaceMark);
      encode_marked(marked, out);
      after_special = false;
    }
  }

  std::string bytes_of(std::string_view token_text) const override {
    std::string bytes(token_text);
    replace_all(bytes, kSpaceMark, " ");
    return bytes;
  }

 private:
  // The hub's library: characters become bytes where the vocabulary has all of them, and only
  // tokens merge.
  void take_rules(const Rules& rules) {
    fuse_unknown_ = rules.fuse_unknown;
    for (unsigned byte = 0; byte < 256; ++byte)
      byte_ids_[byte] = rules.byte_fallback ? map_.find(fmt::format("<0x{:02X}>", byte)) : kNoToken;
    if (std::ranges::find(byte_ids_, kNoToken) != byte_ids_.end()) {
      // Unknown characters at the end of a word and at the start of the next are one token.
      words_are_apart_ &= !fuse_unknown_;
      loses_unknown_ = !vocab_.special.unknown;
    }
    for (size_t id = 0; id < vocab_.tokens.size(); ++id) {
      const std::string_view token = vocab_.tokens[id];
      for (size_t at = 0; at < token.size() && of_texts_[id];) {
        const auto size = static_cast<size_t>(announced_length(token[at]));
        only_tokens_merge_ |= find(token.substr(at, size)) == kNoToken;
        at += size;
      }
    }
  }

  TokenId find(std::string_view text) const {
    const TokenId id = map_.find(text);
    return id != kNoToken && of_texts_[static_cast<size_t>(id)] ? id : kNoToken;
  }

  bool has_bytes(std::string_view text) const {
    return std::ranges::all_of(
        text, [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] != kNoToken; });
  }

  // Characters that no token can express are gone before the others merge.
  std::string without_unknown(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const std::string_view piece =
          text.substr(at, static_cast<size_t>(announced_length(text[at])));
      if (find(piece) != kNoToken || has_bytes(piece)) out += piece;
      at += piece.size();
    }
    return out;
  }

  void queue(std::string_view text, const std::vector<Piece>& symbols, int64_t left,
             std::vector<PiecePair>& heap) const {
    const Piece& a = symbols[static_cast<size_t>(left)];
    if (a.next < 0) return;
    const Piece& b = symbols[static_cast<size_t>(a.next)];
    const int64_t size = a.size + b.size;
    const auto known = [&](const Piece& piece) {
      return find(text.substr(static_cast<size_t>(piece.begin), static_cast<size_t>(piece.size))) !=
             kNoToken;
    };
    if (only_tokens_merge_ && !(known(a) && known(b))) return;
    const TokenId id = find(text.substr(static_cast<size_t>(a.begin), static_cast<size_t>(size)));
    if (id == kNoToken) return;
    heap.push_back({vocab_.scores[static_cast<size_t>(id)], left, size});
    std::push_heap(heap.begin(), heap.end());
  }

  // A space mark begins a word unless it follows another. Where no token reaches over such a place,
  // nothing merges there, and words can be encoded one by one, to the same ids.
  static bool crosses_words(std::string_view token) {
    for (size_t at = 1; (at = token.find(kSpaceMark, at)) != std::string_view::npos; ++at) {
      if (!token.substr(0, at).ends_with(kSpaceMark)) return true;
    }
    return false;
  }

  void encode_marked(std::string_view text, std::vector<TokenId>& out) const {
    WordCache cache(text.size());
    Scratch scratch;
    const auto flush = [&](size_t begin, size_t end) {
      const std::string_view word = text.substr(begin, end - begin);
      if (!word.empty()) cache.append(word, out, [&] { encode_word(word, scratch, out); });
    };
    size_t begin = 0;
    bool after_mark = true;
    for (size_t at = 0; at < text.size() && words_are_apart_;) {
      const size_t size = static_cast<size_t>(announced_length(text[at]));
      const bool mark = text.substr(at, size) == kSpaceMark;
      if (mark && !after_mark) {
        flush(begin, at);
        begin = at;
      }
      after_mark = mark;
      at += size;
    }
    flush(begin, text.size());
  }

  struct Scratch {
    std::vector<Piece> symbols;
    std::vector<PiecePair> heap;
  };

  void encode_word(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
    std::vector<Piece>& symbols = scratch.symbols;
    std::vector<PiecePair>& heap = scratch.heap;
    symbols.clear();
    heap.clear();
    const auto end = static_cast<int64_t>(text.size());
    for (int64_t at = 0; at < end;) {
      const int64_t size = std::min(announced_length(text[static_cast<size_t>(at)]), end - at);
      const auto index = static_cast<int64_t>(symbols.size());
      symbols.push_back({index - 1, at + size < end ? index + 1 : -1, at, size});
      at += size;
    }
    for (size_t i = 0; i < symbols.size(); ++i) queue(text, symbols, static_cast<int64_t>(i), heap);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      const PiecePair best = heap.back();
      heap.pop_back();
      Piece& left = symbols[static_cast<size_t>(best.left)];
      if (left.size == 0 || left.next < 0) continue;
      Piece& right = symbols[static_cast<size_t>(left.next)];
      if (left.size + right.size != best.size) continue;
      left.size = best.size;
      left.next = right.next;
      right.size = 0;
      if (left.next >= 0) symbols[static_cast<size_t>(left.next)].prev = best.left;
      if (left.prev >= 0) queue(text, symbols, left.prev, heap);
      queue(text, symbols, best.left, heap);
    }
    bool after_unknown = false;
    for (int64_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
      const Piece& symbol = symbols[static_cast<size_t>(i)];
      append(text.substr(static_cast<size_t>(symbol.begin), static_cast<size_t>(symbol.size)), out,
             after_unknown);
    }
  }

  void append(std::string_view piece, std::vector<TokenId>& out, bool& after_unknown) const {
    const bool fused = after_unknown && fuse_unknown_;
    after_unknown = false;
    if (const TokenId id = find(piece); id != kNoToken) {
      out.push_back(id);
      return;
    }
    if (vocab_.rules && !has_bytes(piece)) {
      after_unknown = true;
      if (vocab_.special.unknown && !fused) out.push_back(*vocab_.special.unknown);
      return;
    }
    for (const char c : piece) {
      const TokenId id = byte_ids_[static_cast<uint8_t>(c)];
      if (id != kNoToken) out.push_back(id);
    }
  }

  const Vocab& vocab_;
  const TokenMap& map_;
  bool add_space_prefix_;
  bool words_are_apart_ = true;
  bool only_tokens_merge_ = false;  // where that makes a difference
  bool fuse_unknown_ = false;
  bool loses_unknown_ = false;     // there is no token for what is unknown
  std::vector<bool> of_texts_;     // [id]
  std::vector<TokenId> byte_ids_;  // [byte]; kNoToken where the vocabulary cannot express it
};

}  // namespace

std::unique_ptr<Encoder> make_sentence_piece_encoder(const Vocab& vocab, const TokenMap& map,
                                                     bool add_space_prefix) {
  return std::make_unique<SentencePieceEncoder>(vocab, map, add_space_prefix);
}

}  // namespace lockstep::tokenizer
