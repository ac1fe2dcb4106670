// Byte-level BPE: text is cut into words (splitter.h), a word into bytes, and neighbours merge, the
// best-ranked pair of the whole word first, leftmost first among equals.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/encoder.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/pre_tokenizers.h"
#include "tokenizer/splitter.h"
#include "tokenizer/word_cache.h"

namespace lockstep::tokenizer {
namespace {

// A run of bytes in the word, in a doubly linked list. Merging takes the right one out.
struct Symbol {
  int32_t id;  // a token, or beyond the vocabulary a string that only occurs in merges
  int64_t prev;
  int64_t next;
  int64_t begin;  // in the word
};

struct Candidate {
  int32_t rank;
  int32_t left_id, right_id;  // what they were when this was queued: else it is stale
  int32_t merged;
  int64_t left;  // index of the left symbol

  bool operator<(const Candidate& other) const {  // std::priority_queue has the largest on top
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

class BytePairEncoder final : public Encoder {
 public:
  static Result<std::unique_ptr<Encoder>> make(const Vocab& vocab, const TokenMap& map) {
    if (vocab.pre.empty()) {
      return error("{}: the file names no pre-tokenizer (tokenizer.ggml.pre); known are {}",
                   vocab.origin, known_pre_tokenizers());
    }
    const PreTokenizer* pre = find_pre_tokenizer(vocab.pre);
    if (pre == nullptr) {
      return error("{}: unknown pre-tokenizer '{}' (tokenizer.ggml.pre); known are {}",
                   vocab.origin, vocab.pre, known_pre_tokenizers());
    }
    LS_TRY(Splitter splitter, Splitter::compile(pre->patterns));
    auto encoder = std::make_unique<BytePairEncoder>(vocab, map, std::move(splitter));
    encoder->whole_words_ = pre->whole_words;
    encoder->of_texts_ = tokens_of_texts(vocab);
    if (vocab.rules) encoder->unknown_ = vocab.special.unknown;
    encoder->loses_unknown_ = vocab.rules && !encoder->unknown_;
    encoder->fuse_unknown_ = vocab.rules && vocab.rules->fuse_unknown;
    LS_TRY_VOID(encoder->read_merges(vocab));
    return std::unique_ptr<Encoder>(std::move(encoder));
  }

  BytePairEncoder(const Vocab& vocab, const TokenMap& map, Splitter splitter)
      : map_(map),
        size_(static_cast<int32_t>(vocab.tokens.size())),
        splitter_(std::move(splitter)),
        merges_(vocab.merges.size()) {}

  void encode(std::span<const Fragment> fragments, std::vector<TokenId>& out) const override {
    size_t text_bytes = 0;
    for (const Fragment& fragment : fragments) text_bytes += fragment.text.size();
    WordCache cache(text_bytes);
    Scratch scratch;
    for (const Fragment& fragment : fragments) {
      if (fragment.token != kNoToken) {
        out.push_back(fragment.token);
        continue;
      }
      for (const std::string_view word : splitter_.split(fragment.text)) {
        cache.append(word, out, [&] { encode_word(word, scratch, out); });
      }
    }
  }

  std::string bytes_of(std::string_view token_text) const override {
    std::string bytes;
    // A token outside the byte alphabet is its own text (added tokens of some files).
    return alphabet_.spell(token_text, bytes) ? bytes : std::string(token_text);
  }

 private:
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::string spelled;
    std::string known;
  };

  // Real files have merges whose parts or results are no tokens; llama.cpp merges by text, so such
  // strings take part. They get ids past the vocabulary.
  int32_t intern(const std::string& text) {
    if (const TokenId id = map_.find(text); id != kNoToken) return id;
    const auto next = static_cast<int32_t>(static_cast<size_t>(size_) + strings_.size());
    return strings_.try_emplace(text, next).first->second;
  }

  Result<void> read_merges(const Vocab& vocab) {
    for (int byte = 0; byte < 256; ++byte) {
      byte_ids_[static_cast<size_t>(byte)] = intern(alphabet_.text_of(static_cast<uint8_t>(byte)));
    }
    if (vocab.merges.size() > static_cast<size_t>(INT32_MAX / 8)) {
      return error("{}: tokenizer.ggml.merges has {} entries, more than ranks can count",
                   vocab.origin, vocab.merges.size());
    }
    std::string joined, left, right;
    for (size_t rank = 0; rank < vocab.merges.size(); ++rank) {
      const std::string& merge = vocab.merges[rank];
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos || space + 1 == merge.size()) {
        return error("{}: tokenizer.ggml.merges[{}] is '{}', expected two parts and a space",
                     vocab.origin, rank, merge);
      }
      left.assign(merge, 0, space);
      right.assign(merge, space + 1);
      joined.assign(left).append(right);
      merges_.add(intern(left), intern(right), static_cast<int32_t>(rank), intern(joined));
    }
    return {};
  }

  void queue(const std::vector<Symbol>& symbols, int64_t left, std::vector<Candidate>& heap) const {
    const Symbol& a = symbols[static_cast<size_t>(left)];
    if (a.next < 0) return;
    const Symbol& b = symbols[static_cast<size_t>(a.next)];
    const Merge& merge = merges_.find(a.id, b.id);
    if (merge.rank < 0) return;
    heap.push_back({merge.rank, a.id, b.id, merge.merged, left});
    std::push_heap(heap.begin(), heap.end());
  }

  void encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
    if (whole_words_) {
      scratch.spelled.clear();
      for (const char c : word) scratch.spelled += alphabet_.text_of(static_cast<uint8_t>(c));
      if (const TokenId id = map_.find(scratch.spelled);
          id != kNoToken && of_texts_[static_cast<size_t>(id)]) {
        out.push_back(id);
        return;
      }
    }
    std::vector<Symbol>& symbols = scratch.symbols;
    std::vector<Candidate>& heap = scratch.heap;
    symbols.clear();
    heap.clear();
    if (loses_unknown_) {  // what no token can express is gone before the others merge
      scratch.known.clear();
      for (const char c : word)
        if (byte_ids_[static_cast<uint8_t>(c)] < size_) scratch.known += c;
      word = scratch.known;
      if (word.empty()) return;
    }
    const auto count = static_cast<int64_t>(word.size());
    for (int64_t i = 0; i < count; ++i) {
      const auto byte = static_cast<uint8_t>(word[static_cast<size_t>(i)]);
      symbols.push_back({byte_ids_[byte], i - 1, i + 1 < count ? i + 1 : -1, i});
    }
    for (int64_t i = 0; i + 1 < count; ++i) queue(symbols, i, heap);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      const Candidate best = heap.back();
      heap.pop_back();
      Symbol& left = symbols[static_cast<size_t>(best.left)];
      if (left.id != best.left_id || left.next < 0) continue;
      Symbol& right = symbols[static_cast<size_t>(left.next)];
      if (right.id != best.right_id) continue;
      left.id = best.merged;
      left.next = right.next;
      right.id = kNoToken;
      if (left.next >= 0) symbols[static_cast<size_t>(left.next)].prev = best.left;
      if (left.prev >= 0) queue(symbols, left.prev, heap);
      queue(symbols, best.left, heap);
    }
    bool after_unknown = false;
    for (int64_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
      const Symbol& symbol = symbols[static_cast<size_t>(i)];
      if (symbol.id < size_) {
        out.push_back(symbol.id);
        after_unknown = false;
        continue;
      }
      const int64_t end = symbol.next < 0 ? count : symbols[static_cast<size_t>(symbol.next)].begin;
      append_bytes(
          word.substr(static_cast<size_t>(symbol.begin), static_cast<size_t>(end - symbol.begin)),
          out, after_unknown);
    }
  }

  // A string that is no token: byte by byte. A byte that is no token either is the unknown token
  // where a tokenizer.json names one, or is lost, as in llama.cpp and HF's tokenizers: StarCoder's
  // vocabulary cannot express some bytes that no text has.
  void append_bytes(std::string_view bytes, std::vector<TokenId>& out, bool& after_unknown) const {
    for (const char c : bytes) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      const bool known = id < size_;
      if (known) out.push_back(id);
      if (!known && unknown_ && !(after_unknown && fuse_unknown_)) out.push_back(*unknown_);
      after_unknown = !known;
    }
  }

  const TokenMap& map_;
  int32_t size_;
  Splitter splitter_;
  ByteAlphabet alphabet_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<std::string, int32_t> strings_;  // in merges, yet no tokens
  bool whole_words_ = false;
  std::vector<bool> of_texts_;      // [id]
  std::optional<TokenId> unknown_;  // of a tokenizer.json
  bool fuse_unknown_ = false;
  bool loses_unknown_ = false;  // there is no token for what is unknown
};

}  // namespace

Result<std::unique_ptr<Encoder>> make_byte_pair_encoder(const Vocab& vocab, const TokenMap& map) {
  return BytePairEncoder::make(vocab, map);
}

}  // namespace lockstep::tokenizer
