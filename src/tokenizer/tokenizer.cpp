#include "tokenizer/tokenizer.h"

#include "base/no_throw.h"
#include "tokenizer/encoder.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/pre_tokenizers.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/utf8.h"

namespace lockstep::tokenizer {
namespace {

// The byte of a token such as <0x0A>.
std::optional<char> byte_of(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + (lower - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return static_cast<char>(value);
}

// Pieces without these keys: SentencePiece models mean <unk>, <s>, </s>, as Llama has them.
void set_default_ids(Vocab& vocab) {
  if (vocab.rules) {
    if (vocab.rules->unknown) vocab.special.unknown = vocab.rules->unknown;
    return;
  }
  if (vocab.family == Family::kBytePairs) return;
  const auto fill = [&](std::optional<TokenId>& id, TokenId otherwise) {
    if (!id && static_cast<size_t>(otherwise) < vocab.tokens.size()) id = otherwise;
  };
  if (vocab.family == Family::kUnigram) {  // as T5 has them
    fill(vocab.special.eos, 1);
    fill(vocab.special.unknown, 2);
    return;
  }
  fill(vocab.special.unknown, 0);
  fill(vocab.special.bos, 1);
  fill(vocab.special.eos, 2);
}

class VocabTokenizer final : public Tokenizer {
 public:
  explicit VocabTokenizer(Vocab vocab)
      : vocab_(std::move(vocab)), map_(vocab_.tokens), special_(vocab_, map_) {}

  Result<void> prepare() {
    const bool pieces = vocab_.family == Family::kSentencePiece;
    const bool unigram = vocab_.family == Family::kUnigram;
    adds_space_ = vocab_.rules ? vocab_.rules->adds_space()
                               : vocab_.add_space_prefix.value_or(pieces) && (pieces || unigram);
    if (pieces) {
      encoder_ = make_sentence_piece_encoder(vocab_, map_, adds_space_);
    } else if (unigram) {
      if (!vocab_.special.unknown)
        return error("{}: the vocabulary has no unknown token (tokenizer.ggml.unknown_token_id)",
                     vocab_.origin);
      encoder_ = make_unigram_encoder(vocab_, map_);
    } else {
      LS_TRY(encoder_, make_byte_pair_encoder(vocab_, map_));
      vocab_.merges = {};
    }
    if (vocab_.rules) pipeline_.emplace(*vocab_.rules, size());
    const PreTokenizer* pre = pieces || unigram ? nullptr : find_pre_tokenizer(vocab_.pre);
    const bool usual_bos = pieces || (pre != nullptr && pre->add_bos);
    adds_bos_ = vocab_.add_bos.value_or(vocab_.special.bos && usual_bos);
    adds_eos_ = vocab_.add_eos.value_or(unigram && vocab_.special.eos);
    if (adds_bos_ && !vocab_.special.bos)
      return error("{}: add_bos_token is set, but no bos_token_id", vocab_.origin);
    if (adds_eos_ && !vocab_.special.eos)
      return error("{}: add_eos_token is set, but no eos_token_id", vocab_.origin);
    if (vocab_.rules) return take_ids(*vocab_.rules);
    if (adds_bos_) before_ = {*vocab_.special.bos};
    if (adds_eos_) after_ = {*vocab_.special.eos};
    return {};
  }

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<TokenId> ids;
    if (options.add_special) ids = before_;
    if (pipeline_) {
      std::deque<std::string> made;
      encoder_->encode(pipeline_->run(text, options.parse_special, made), ids);
    } else {
      encoder_->encode(special_.split(text, options.parse_special), ids);
    }
    if (options.add_special) ids.insert(ids.end(), after_.begin(), after_.end());
    return ids;
  }

  std::string piece(TokenId id, bool special) const override {
    const std::string_view stored = text(id);
    switch (type(id)) {
      case TokenType::kControl:
      case TokenType::kUnknown:
        return special ? std::string(stored) : "";
      case TokenType::kUserDefined:
        return std::string(stored);
      case TokenType::kNormal:
        return encoder_->bytes_of(stored);
      case TokenType::kByte:
        if (const std::optional<char> byte = byte_of(stored)) return std::string(1, *byte);
        return encoder_->bytes_of(stored);
      case TokenType::kUndefined:
      case TokenType::kUnused:
        break;
    }
    return "";
  }

  std::string decode(const std::vector<TokenId>& ids, bool special) const override {
    std::string bytes;
    bool first = adds_space_;
    for (const TokenId id : ids) {
      const std::string more = piece(id, special);
      const bool is_text = type(id) != TokenType::kControl && type(id) != TokenType::kUnknown;
      bytes.append(more, first && is_text && more.starts_with(' ') ? 1 : 0);
      if (is_text) first = false;
    }
    return bytes;
  }

  int64_t size() const override { return static_cast<int64_t>(vocab_.tokens.size()); }
  std::string_view text(TokenId id) const override {
    return is_known(id) ? std::string_view(vocab_.tokens[static_cast<size_t>(id)]) : "";
  }
  std::optional<TokenId> bos() const override { return vocab_.special.bos; }
  std::optional<TokenId> eos() const override { return vocab_.special.eos; }
  bool ends_generation(TokenId id) const override {
    return is_known(id) && special_.ends_generation(id);
  }
  TokenType type(TokenId id) const override {
    return is_known(id) ? vocab_.types[static_cast<size_t>(id)] : TokenType::kUndefined;
  }
  bool adds_bos() const override { return adds_bos_; }
  bool adds_space() const override { return adds_space_; }

 private:
  Result<void> take_ids(const Rules& rules) {
    before_ = rules.before;
    after_ = rules.after;
    std::vector<TokenId> made = before_;
    made.insert(made.end(), after_.begin(), after_.end());
    if (rules.unknown) made.push_back(*rules.unknown);
    for (const TokenId id : made)
      if (!is_known(id))
        return error("{}: {}: found the id {}, expected one below the {} tokens", vocab_.origin,
                     kRulesKey, id, size());
    adds_bos_ = !before_.empty() && before_.front() == vocab_.special.bos;
    return {};
  }

  bool is_known(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < vocab_.tokens.size();
  }

  Vocab vocab_;
  TokenMap map_;                      // points into vocab_
  SpecialTokens special_;             // the same; corrects the types
  std::optional<Pipeline> pipeline_;  // where there are rules
  std::unique_ptr<Encoder> encoder_;
  bool adds_bos_ = false;
  bool adds_eos_ = false;
  std::vector<TokenId> before_, after_;  // what stands around a text
  bool adds_space_ = false;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const gguf::File& file) {
  return no_throw([&]() -> Result<std::unique_ptr<Tokenizer>> {
    LS_TRY(Vocab vocab, read_vocab(file));
    return create(std::move(vocab));
  });
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(Vocab vocab) {
  LS_TRY_VOID(check_vocab(vocab));
  set_default_ids(vocab);
  auto tokenizer = std::make_unique<VocabTokenizer>(std::move(vocab));
  LS_TRY_VOID(tokenizer->prepare());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

std::string StreamDecoder::push(TokenId id) {
  std::string piece = tokenizer_.piece(id);
  if (first_ && tokenizer_.adds_space() && piece.starts_with(' ')) piece.erase(0, 1);
  const TokenType type = tokenizer_.type(id);
  if (type != TokenType::kControl && type != TokenType::kUnknown) first_ = false;
  pending_ += piece;
  std::string shown;
  size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Step step = utf8_step(std::string_view(pending_).substr(at));
    if (step.state == Utf8::kCut) break;
    shown += step.state == Utf8::kWhole ? std::string_view(pending_).substr(at, step.length)
                                        : kReplacement;
    at += step.length;
  }
  pending_.erase(0, at);
  return shown;
}

std::string StreamDecoder::finish() {
  const bool left = !pending_.empty();
  pending_.clear();
  return std::string(left ? kReplacement : "");
}

}  // namespace lockstep::tokenizer
