#include "tokenizer/special_tokens.h"

#include <algorithm>
#include <cctype>

namespace lockstep::tokenizer {
namespace {

// GGUF files say little about the roles of tokens, so engines go by well-known texts.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<｜end▁of▁sentence｜>",
};

// Fill-in-the-middle markers, which files often call user-defined.
constexpr std::string_view kPrefixTexts[] = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",    "<｜fim▁begin｜>",
    "<PRE>",          "▁<PRE>",       "<|code_prefix|>",
};
constexpr std::string_view kSuffixTexts[] = {
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",    "<｜fim▁hole｜>",
    "<SUF>",          "▁<SUF>",       "<|code_suffix|>",
};
constexpr std::string_view kMiddleTexts[] = {
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>",    "<｜fim▁end｜>",
    "<MID>",          "▁<MID>",       "<|code_middle|>",
};
constexpr std::string_view kPadTexts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>",
                                          "[PAD]"};
constexpr std::string_view kRepoTexts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
                                           "<reponame>"};
constexpr std::string_view kSeparatorTexts[] = {"<|file_sep|>"};

// Marks of the channels of gpt-oss: part of what a reader of the output wants to see.
constexpr std::string_view kShownTexts[] = {"<|channel|>", "<|message|>", "<|start|>",
                                            "<|constrain|>"};

template <size_t N>
void mark(Vocab& vocab, const TokenMap& map, const std::string_view (&texts)[N], TokenType type) {
  for (const std::string_view text : texts) {
    if (const TokenId id = map.find(text); id != kNoToken)
      vocab.types[static_cast<size_t>(id)] = type;
  }
}

template <size_t N>
std::optional<TokenId> first_of(const TokenMap& map, const std::string_view (&texts)[N]) {
  for (const std::string_view text : texts) {
    if (const TokenId id = map.find(text); id != kNoToken) return id;
  }
  return std::nullopt;
}

// gpt-oss and Solar end a message with <|end|> and the answer with others: there it ends nothing.
bool end_is_not_the_end(const TokenMap& map) {
  const auto has = [&](std::string_view text) { return map.find(text) != kNoToken; };
  const bool call = has("<|call|>") || has("<|calls|>");
  return has("<|end|>") && call && (has("<|return|>") || has("<|flush|>"));
}

bool is_phi3(std::string_view model_name) {
  std::string lower(model_name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos;
}

// As isspace() in the C locale, whatever the locale is.
bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

SpecialTokens::SpecialTokens(Vocab& vocab, const TokenMap& map) : ends_(vocab.tokens.size()) {
  collect_ends(vocab, map);
  correct_types(vocab, map);
  // The tokenizer of Phi-3 strips white space after its special tokens; GGUF has no key for it, so
  // the model's name decides, as in llama.cpp.
  const bool phi3 = is_phi3(vocab.model_name);
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const TokenType type = vocab.types[id];
    const bool always = type == TokenType::kUserDefined;
    if (!always && type != TokenType::kControl && type != TokenType::kUnknown) continue;
    const std::string_view text = vocab.tokens[id];
    if (text.empty()) continue;
    const bool strips = phi3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
    recognized_.push_back({text, static_cast<TokenId>(id), always, strips});
  }
  std::stable_sort(recognized_.begin(), recognized_.end(),
                   [](const auto& a, const auto& b) { return a.text.size() > b.text.size(); });
  build_tree();
}

void SpecialTokens::correct_types(Vocab& vocab, const TokenMap& map) {
  mark(vocab, map, kPrefixTexts, TokenType::kControl);
  mark(vocab, map, kSuffixTexts, TokenType::kControl);
  mark(vocab, map, kMiddleTexts, TokenType::kControl);
  mark(vocab, map, kPadTexts, TokenType::kControl);
  mark(vocab, map, kRepoTexts, TokenType::kControl);
  mark(vocab, map, kSeparatorTexts, TokenType::kControl);
  mark(vocab, map, kEndTexts, TokenType::kControl);
  mark(vocab, map, kShownTexts, TokenType::kUserDefined);
  if (end_is_not_the_end(map))
    vocab.types[static_cast<size_t>(map.find("<|end|>"))] = TokenType::kUserDefined;
}

void SpecialTokens::collect_ends(const Vocab& vocab, const TokenMap& map) {
  const auto add = [&](std::optional<TokenId> id) {
    if (id) ends_[static_cast<size_t>(*id)] = true;
  };
  for (const std::string_view text : kEndTexts) {
    if (const TokenId id = map.find(text); id != kNoToken) add(id);
  }
  const SpecialIds& ids = vocab.special;
  add(ids.fim_pad ? ids.fim_pad : first_of(map, kPadTexts));
  add(ids.fim_repo ? ids.fim_repo : first_of(map, kRepoTexts));
  add(ids.fim_separator ? ids.fim_separator : first_of(map, kSeparatorTexts));
  add(ids.eos);
  add(ids.eot);
  add(ids.eom);
  if (end_is_not_the_end(map)) ends_[static_cast<size_t>(map.find("<|end|>"))] = false;
}

void SpecialTokens::build_tree() {
  const auto child = [&](int32_t parent, uint8_t byte) {
    for (const auto& [b, node] : tree_[static_cast<size_t>(parent)].children) {
      if (b == byte) return node;
    }
    const auto node = static_cast<int32_t>(tree_.size());
    tree_[static_cast<size_t>(parent)].children.emplace_back(byte, node);
    tree_.emplace_back();
    return node;
  };
  for (size_t row = 0; row < recognized_.size(); ++row) {
    const std::string_view text = recognized_[row].text;
    int32_t& root = roots_[static_cast<uint8_t>(text[0])];
    if (root < 0) {
      root = static_cast<int32_t>(tree_.size());
      tree_.emplace_back();
    }
    int32_t node = root;
    for (const char c : text.substr(1)) node = child(node, static_cast<uint8_t>(c));
    // Of equal texts the first stands, which has the lowest id.
    if (tree_[static_cast<size_t>(node)].row < 0)
      tree_[static_cast<size_t>(node)].row = static_cast<int32_t>(row);
  }
}

std::vector<bool> SpecialTokens::occurring(std::string_view text) const {
  std::vector<bool> found(recognized_.size());
  for (size_t begin = 0; begin < text.size(); ++begin) {
    int32_t node = roots_[static_cast<uint8_t>(text[begin])];
    for (size_t at = begin + 1; node >= 0; ++at) {
      const Node& here = tree_[static_cast<size_t>(node)];
      if (here.row >= 0) found[static_cast<size_t>(here.row)] = true;
      if (at == text.size()) break;
      node = -1;
      for (const auto& [byte, next] : here.children) {
        if (byte == static_cast<uint8_t>(text[at])) node = next;
      }
    }
  }
  return found;
}

std::vector<Fragment> SpecialTokens::split(std::string_view text, bool parse_special) const {
  std::vector<Fragment> fragments;
  if (text.empty()) return fragments;
  fragments.push_back({text});
  if (recognized_.empty()) return fragments;
  const std::vector<bool> found = occurring(text);
  std::vector<Fragment> cut;
  for (size_t row = 0; row < recognized_.size(); ++row) {
    const Recognized& token = recognized_[row];
    if (!found[row] || !(parse_special || token.always)) continue;
    cut.clear();
    for (const Fragment& fragment : fragments) {
      std::string_view rest = fragment.text;
      size_t at = std::string_view::npos;
      while (fragment.token == kNoToken && (at = rest.find(token.text)) != std::string_view::npos) {
        if (at > 0) cut.push_back({rest.substr(0, at)});
        cut.push_back({token.text, token.id});
        rest.remove_prefix(at + token.text.size());
        while (token.strip_after && !rest.empty() && is_ascii_space(rest[0])) rest.remove_prefix(1);
      }
      if (fragment.token != kNoToken) {
        cut.push_back(fragment);
      } else if (!rest.empty()) {
        cut.push_back({rest});
      }
    }
    fragments.swap(cut);
  }
  return fragments;
}

}  // namespace lockstep::tokenizer
