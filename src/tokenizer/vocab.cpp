#include "tokenizer/vocab.h"

#include <cmath>
#include <limits>

namespace lockstep::tokenizer {
namespace {

constexpr size_t kMostSpecialBytes = 4096;

Result<std::optional<TokenId>> optional_id(const gguf::File& file, std::string_view key,
                                           size_t tokens) {
  if (file.find(key) == nullptr) return std::optional<TokenId>();
  LS_TRY(const int64_t id, file.integer(key));
  // Files write "none" as the largest unsigned number.
  if (id == -1 || id == std::numeric_limits<uint32_t>::max()) return std::optional<TokenId>();
  if (id < 0 || static_cast<uint64_t>(id) >= tokens) {
    return error("{}: {} is {}, expected an id below the {} tokens of the vocabulary", file.path(),
                 key, id, tokens);
  }
  return std::optional<TokenId>(static_cast<TokenId>(id));
}

Result<std::optional<bool>> optional_flag(const gguf::File& file, std::string_view key) {
  if (file.find(key) == nullptr) return std::optional<bool>();
  LS_TRY(const bool flag, file.boolean(key));
  return std::optional<bool>(flag);
}

Result<SpecialIds> read_special_ids(const gguf::File& file, size_t tokens) {
  SpecialIds ids;
  const struct {
    const char* key;
    std::optional<TokenId>* id;
  } rows[] = {
      {"tokenizer.ggml.bos_token_id", &ids.bos},
      {"tokenizer.ggml.eos_token_id", &ids.eos},
      {"tokenizer.ggml.eot_token_id", &ids.eot},
      {"tokenizer.ggml.eom_token_id", &ids.eom},
      {"tokenizer.ggml.unknown_token_id", &ids.unknown},
      {"tokenizer.ggml.fim_pad_token_id", &ids.fim_pad},
      {"tokenizer.ggml.fim_rep_token_id", &ids.fim_repo},
      {"tokenizer.ggml.fim_sep_token_id", &ids.fim_separator},
  };
  for (const auto& row : rows) {
    LS_TRY(*row.id, optional_id(file, row.key, tokens));
  }
  return ids;
}

Result<std::vector<TokenType>> read_types(const gguf::File& file, size_t tokens) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  if (file.find(kKey) == nullptr) return std::vector<TokenType>(tokens, TokenType::kNormal);
  LS_TRY(const std::vector<int64_t> numbers, file.integers(kKey));
  std::vector<TokenType> types;
  types.reserve(numbers.size());
  for (size_t id = 0; id < numbers.size(); ++id) {
    if (numbers[id] < 0 || numbers[id] >= kTokenTypes) {
      return error("{}: {}[{}] is {}, expected 0 to {}", file.path(), kKey, id, numbers[id],
                   kTokenTypes - 1);
    }
    types.push_back(static_cast<TokenType>(numbers[id]));
  }
  return types;
}

Result<void> add_rules(const gguf::File& file, Vocab& vocab) {
  if (file.find(kRulesKey) == nullptr) return {};
  const std::string source = fmt::format("{}: {}", file.path(), kRulesKey);
  LS_TRY(const std::string_view text, file.text(kRulesKey));
  LS_TRY(const nlohmann::json document, parse_json(text, source));
  const JsonReader root(document, source);
  LS_TRY_VOID(root.object());
  LS_TRY(Rules rules, read_rules(root));
  vocab.rules = std::make_shared<const Rules>(std::move(rules));
  return {};
}

Result<void> read_unigram(const gguf::File& file, Vocab& vocab) {
  constexpr std::string_view kScores = "tokenizer.lockstep.scores";
  if (const gguf::Value* value = file.find(kScores)) {
    const auto* list = std::get_if<gguf::Array>(&value->value);
    const auto* scores = list ? std::get_if<std::vector<double>>(&list->items) : nullptr;
    if (scores == nullptr)
      return error("{}: {} is {}, expected f64 numbers", file.path(), kScores, type_name(*value));
    vocab.exact_scores = *scores;
  }
  constexpr std::string_view kMap = "tokenizer.ggml.precompiled_charsmap";
  if (file.find(kMap) != nullptr) {
    LS_TRY(const std::vector<int64_t> numbers, file.integers(kMap));
    std::string bytes;
    for (const int64_t number : numbers) bytes += static_cast<char>(number);  // or of signed bytes
    LS_TRY(vocab.charsmap, Charsmap::read(bytes, fmt::format("{}: {}", file.path(), kMap)));
  }
  LS_TRY(const std::optional<bool> merge,
         optional_flag(file, "tokenizer.ggml.remove_extra_whitespaces"));
  LS_TRY(const std::optional<bool> escape,
         optional_flag(file, "tokenizer.ggml.escape_whitespaces"));
  vocab.merge_spaces = merge.value_or(false);
  vocab.escape_spaces = escape.value_or(true);
  return {};
}

}  // namespace

std::vector<bool> tokens_of_texts(const Vocab& vocab) {
  std::vector<bool> out(vocab.tokens.size(), true);
  if (!vocab.rules) return out;
  for (size_t id = 0; id < out.size(); ++id) out[id] = vocab.types[id] != TokenType::kUnused;
  for (const TokenId id : vocab.rules->outside)
    if (static_cast<size_t>(id) < out.size()) out[static_cast<size_t>(id)] = false;
  return out;
}

Result<Vocab> read_vocab(const gguf::File& file) {
  LS_TRY(const std::string_view model, file.text_or("tokenizer.ggml.model", "none"));
  if (model == "none" || model == "no_vocab") {
    if (file.version() == 0)  // a folder, whose reader says what is not supported
      return error("{}: the folder has no tokenizer.json that is supported; give token ids",
                   file.path());
    return error("{}: the file has no tokenizer (tokenizer.ggml.model is {}); give token ids",
                 file.path(), file.find("tokenizer.ggml.model") ? model : "absent");
  }
  Vocab vocab;
  vocab.origin = file.path();
  if (model == "gpt2") {
    vocab.family = Family::kBytePairs;
  } else if (model == "llama") {
    vocab.family = Family::kSentencePiece;
  } else if (model == "t5") {
    vocab.family = Family::kUnigram;
  } else {
    return error("{}: unknown tokenizer '{}' (tokenizer.ggml.model); known are gpt2, llama, t5",
                 file.path(), model);
  }
  LS_TRY(vocab.model_name, file.text_or("general.name", ""));
  LS_TRY(const std::vector<std::string>* tokens, file.texts("tokenizer.ggml.tokens"));
  vocab.tokens = *tokens;
  LS_TRY(vocab.types, read_types(file, vocab.tokens.size()));
  LS_TRY(vocab.special, read_special_ids(file, vocab.tokens.size()));
  LS_TRY(vocab.add_bos, optional_flag(file, "tokenizer.ggml.add_bos_token"));
  LS_TRY(vocab.add_eos, optional_flag(file, "tokenizer.ggml.add_eos_token"));
  LS_TRY(vocab.add_space_prefix, optional_flag(file, "tokenizer.ggml.add_space_prefix"));
  if (vocab.family == Family::kBytePairs) {
    LS_TRY(vocab.pre, file.text_or("tokenizer.ggml.pre", ""));
    LS_TRY(const std::vector<std::string>* merges, file.texts("tokenizer.ggml.merges"));
    vocab.merges = *merges;
  } else {
    LS_TRY(vocab.scores, file.reals("tokenizer.ggml.scores"));
  }
  LS_TRY_VOID(add_rules(file, vocab));
  if (vocab.family == Family::kUnigram) LS_TRY_VOID(read_unigram(file, vocab));
  LS_TRY_VOID(check_vocab(vocab));
  return vocab;
}

Result<void> check_vocab(const Vocab& vocab) {
  const size_t size = vocab.tokens.size();
  if (size == 0) return error("{}: tokenizer.ggml.tokens is empty", vocab.origin);
  if (size > static_cast<size_t>(std::numeric_limits<TokenId>::max() / 2)) {
    return error("{}: tokenizer.ggml.tokens has {} entries, more than ids can count", vocab.origin,
                 size);
  }
  if (vocab.types.size() != size) {
    return error("{}: tokenizer.ggml.token_type has {} entries, expected {}, one a token",
                 vocab.origin, vocab.types.size(), size);
  }
  if (vocab.family != Family::kBytePairs) {
    if (vocab.scores.size() != size) {
      return error("{}: tokenizer.ggml.scores has {} entries, expected {}, one a token",
                   vocab.origin, vocab.scores.size(), size);
    }
    for (size_t id = 0; id < size; ++id) {
      if (std::isnan(vocab.scores[id]))
        return error("{}: tokenizer.ggml.scores[{}] is no number", vocab.origin, id);
    }
  }
  if (!vocab.exact_scores.empty() && vocab.exact_scores.size() != size) {
    return error("{}: tokenizer.lockstep.scores has {} entries, expected {}, one a token",
                 vocab.origin, vocab.exact_scores.size(), size);
  }
  for (const double score : vocab.exact_scores)
    if (std::isnan(score)) return error("{}: tokenizer.lockstep.scores: no number", vocab.origin);
  for (size_t id = 0; id < size; ++id) {
    // Such tokens are searched for in every text; a long one would make that slow.
    const bool searched = vocab.types[id] == TokenType::kControl ||
                          vocab.types[id] == TokenType::kUserDefined ||
                          vocab.types[id] == TokenType::kUnknown;
    if (searched && vocab.tokens[id].size() > kMostSpecialBytes) {
      return error("{}: special token {} has {} bytes, expected at most {}", vocab.origin, id,
                   vocab.tokens[id].size(), kMostSpecialBytes);
    }
  }
  const SpecialIds& ids = vocab.special;
  for (const std::optional<TokenId>& id : {ids.bos, ids.eos, ids.eot, ids.eom, ids.unknown,
                                           ids.fim_pad, ids.fim_repo, ids.fim_separator}) {
    if (id && (*id < 0 || static_cast<size_t>(*id) >= size)) {
      return error("{}: special token id {}, expected one below the {} tokens of the vocabulary",
                   vocab.origin, *id, size);
    }
  }
  return {};
}

}  // namespace lockstep::tokenizer
