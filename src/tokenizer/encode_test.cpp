// Both families against slow, obvious versions of themselves, and the rules around special tokens.
#include <algorithm>
#include <climits>
#include <map>

#include <gtest/gtest.h>

#include "base/random.h"
#include "tokenizer/test_vocabs.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> make(Vocab vocab) {
  auto made = Tokenizer::create(std::move(vocab));
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::move(*made) : nullptr;
}

TokenId id_of(const Tokenizer& tokens, std::string_view text) {
  for (TokenId id = 0; id < tokens.size(); ++id) {
    if (tokens.text(id) == text) return id;
  }
  return kNoToken;
}

Ids ids_of(const Tokenizer& tokens, std::initializer_list<const char*> texts) {
  Ids ids;
  for (const char* text : texts) ids.push_back(id_of(tokens, text));
  return ids;
}

std::string random_text(Random& random, std::string_view letters, int64_t size) {
  std::string text;
  for (int64_t i = 0; i < size; ++i)
    text += letters[static_cast<size_t>(random.below(static_cast<int64_t>(letters.size())))];
  return text;
}

TEST(BytePairs, MergesByRankThenPlace) {
  const auto tokens = make(small_byte_pairs());
  EXPECT_EQ(tokens->encode("hello world"), ids_of(*tokens, {"hello", "Ġwor", "ld"}));
  EXPECT_EQ(tokens->encode("aaaaa"), ids_of(*tokens, {"aaaa", "a"}));
  EXPECT_EQ(tokens->encode(""), Ids());
}

// Merging by text, the whole word searched for its best pair each time.
std::vector<std::string> slow_merge(
    const std::string& word, const std::map<std::pair<std::string, std::string>, int>& rank) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (true) {
    int best = INT_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = rank.find({parts[i], parts[i + 1]});
      if (found != rank.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == INT_MAX) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(BytePairs, EqualsTheSlowVersion) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Vocab vocab;
    vocab.pre = "gpt-2";
    for (const char c : std::string("abc")) add_token(vocab, std::string(1, c));
    std::map<std::pair<std::string, std::string>, int> rank;
    std::map<std::string, int> known = {{"a", 0}, {"b", 1}, {"c", 2}};
    std::vector<std::string> strings = {"a", "b", "c"};
    for (int i = 0; i < 40; ++i) {
      const auto pick = [&] {
        return strings[static_cast<size_t>(random.below(static_cast<int64_t>(strings.size())))];
      };
      const std::string left = pick(), right = pick();
      if (left.size() + right.size() > 8) continue;
      vocab.merges.push_back(left + " " + right);
      rank.try_emplace({left, right}, static_cast<int>(vocab.merges.size()) - 1);
      strings.push_back(left + right);
      // A third of the merges make strings that are no tokens: they still take part.
      if (random.below(3) > 0 && known.try_emplace(left + right, vocab.tokens.size()).second)
        add_token(vocab, left + right);
    }
    const auto tokens = make(vocab);
    for (int64_t size : {1, 2, 7, 31, 255, 257}) {
      const std::string word = random_text(random, "abc", size);
      Ids want;
      for (const std::string& part : slow_merge(word, rank)) {
        if (known.contains(part)) {
          want.push_back(known.at(part));
        } else {
          for (const char c : part) want.push_back(c - 'a');
        }
      }
      EXPECT_EQ(tokens->encode(word), want) << word;
    }
  }
}

TEST(BytePairs, AnyBytesComeBack) {
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "smollm", "tekken", "deepseek-v3"}) {
    const auto tokens = make(small_byte_pairs(pre));
    for (uint64_t seed = 0; seed < 200; ++seed) {
      SCOPED_TRACE(fmt::format("{} {}", pre, seed));
      Random random(seed);
      std::string text;
      const int64_t size = random.below(258);
      for (int64_t i = 0; i < size; ++i) {
        if (random.below(8) == 0) text += "hello world é好\xf0\x9f\xa6\x99<tool><|im_end|>";
        text += static_cast<char>(random.below(256));
      }
      EXPECT_EQ(tokens->decode(tokens->encode(text, {.add_special = false}), true), text);
    }
  }
}

TEST(BytePairs, WholeWordsGoFirstWhereThePreTokenizerSaysSo) {
  for (const auto& [pre, want] : {std::pair("llama-bpe", 1u), std::pair("qwen2", 3u)}) {
    Vocab vocab = small_byte_pairs(pre);
    add_token(vocab, "xyz");  // no merges lead there
    EXPECT_EQ(make(vocab)->encode("xyz", {.add_special = false}).size(), want) << pre;
  }
}

TEST(BytePairs, ByteThatNoTokenHasIsLeftOut) {
  Vocab vocab;
  vocab.pre = "gpt-2";
  add_token(vocab, "a");
  EXPECT_EQ(make(vocab)->encode("aba"), (Ids{0, 0}));
}

TEST(SpecialTokens, AreCutOutAsTheOptionsSay) {
  const auto tokens = make(small_byte_pairs());
  const Ids parsed = tokens->encode("he<|im_end|>ll<tool>");
  EXPECT_EQ(parsed, ids_of(*tokens, {"he", "<|im_end|>", "ll", "<tool>"}));
  const Ids plain = tokens->encode("he<|im_end|><tool>", {.parse_special = false});
  EXPECT_EQ(plain.back(), id_of(*tokens, "<tool>"));  // user-defined: always
  EXPECT_EQ(std::count(plain.begin(), plain.end(), id_of(*tokens, "<|im_end|>")), 0);
  EXPECT_EQ(tokens->decode(plain), "he<|im_end|><tool>");
  EXPECT_EQ(tokens->decode(parsed), "hell<tool>");
  EXPECT_EQ(tokens->decode(parsed, true), "he<|im_end|>ll<tool>");
}

TEST(SpecialTokens, LongerOnesGoFirst) {
  const auto tokens = make(small_byte_pairs());
  EXPECT_EQ(tokens->encode("<tool><tool><tool>"), ids_of(*tokens, {"<tool><tool>", "<tool>"}));
}

TEST(SpecialTokens, WellKnownTextsAreControlWhateverTheFileSays) {
  Vocab vocab = small_byte_pairs();
  const TokenId fim = add_token(vocab, "<|fim_prefix|>", TokenType::kUserDefined);
  const TokenId eot = add_token(vocab, "<|eot_id|>", TokenType::kNormal);
  const TokenId pad = add_token(vocab, "<|fim_pad|>", TokenType::kUserDefined);
  const auto tokens = make(vocab);
  EXPECT_EQ(tokens->type(fim), TokenType::kControl);
  EXPECT_FALSE(tokens->ends_generation(fim));
  EXPECT_TRUE(tokens->ends_generation(eot));
  EXPECT_TRUE(tokens->ends_generation(pad));
  EXPECT_EQ(tokens->encode("<|eot_id|>"), Ids{eot});
  EXPECT_EQ(tokens->piece(eot), "");
  EXPECT_FALSE(tokens->ends_generation(-1));
  EXPECT_FALSE(tokens->ends_generation(static_cast<TokenId>(tokens->size())));
}

TEST(SpecialTokens, EndOfMessageIsNoEndInGptOss) {
  Vocab vocab = small_byte_pairs("gpt-4o");
  const TokenId end = add_token(vocab, "<|end|>", TokenType::kControl);
  EXPECT_TRUE(make(vocab)->ends_generation(end));
  const TokenId call = add_token(vocab, "<|call|>", TokenType::kControl);
  add_token(vocab, "<|return|>", TokenType::kControl);
  EXPECT_FALSE(make(vocab)->ends_generation(end));
  EXPECT_TRUE(make(vocab)->ends_generation(call));
}

TEST(SpecialTokens, PhiStripsWhiteSpaceAfterThem) {
  Vocab vocab = small_sentence_pieces();
  const Ids plain = make(vocab)->encode("<|user|> \n hello", {.add_special = false});
  vocab.model_name = "Phi-3 mini";
  const auto tokens = make(vocab);
  EXPECT_EQ(tokens->encode("<|user|> \n hello", {.add_special = false}),
            ids_of(*tokens, {"<|user|>", "▁hello"}));
  EXPECT_GT(plain.size(), 2u);
  EXPECT_EQ(tokens->encode("<s> hello", {.add_special = false}),
            ids_of(*tokens, {"<s>", "▁▁", "he", "llo"}));
}

TEST(SentencePieces, MergesByScoreAndFallsBackToBytes) {
  const auto tokens = make(small_sentence_pieces());
  EXPECT_EQ(tokens->encode("hello world"), ids_of(*tokens, {"<s>", "▁hello", "▁world"}));
  EXPECT_EQ(tokens->encode("é\nß", {.add_special = false}),
            ids_of(*tokens, {"▁", "é", "<0x0A>", "<0xC3>", "<0x9F>"}));
  EXPECT_EQ(tokens->encode(""), ids_of(*tokens, {"<s>"}));
  EXPECT_EQ(tokens->decode(tokens->encode("hello world")), "hello world");
}

TEST(SentencePieces, SpacePrefixIsTheFilesChoice) {
  Vocab vocab = small_sentence_pieces();
  vocab.add_space_prefix = false;
  vocab.add_bos = false;
  vocab.add_eos = true;
  const auto tokens = make(vocab);
  EXPECT_EQ(tokens->encode("hello"), ids_of(*tokens, {"he", "llo", "</s>"}));
  EXPECT_EQ(tokens->decode(ids_of(*tokens, {"▁hello"})), " hello");
}

TEST(SentencePieces, EqualsTheSlowVersion) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Vocab vocab = small_sentence_pieces();
    vocab.add_space_prefix = false;
    std::map<std::string, float> score;
    for (size_t id = 0; id < vocab.tokens.size(); ++id) score[vocab.tokens[id]] = vocab.scores[id];
    for (int i = 0; i < 60; ++i) {
      // With every other seed, tokens reach from one word into the next.
      std::string text = random_text(random, seed % 2 == 0 ? "ab" : "ab_", 1 + random.below(5));
      for (size_t at; (at = text.find('_')) != std::string::npos;) text.replace(at, 1, "▁");
      const auto value = static_cast<float>(random.below(20));
      if (score.try_emplace(text, value).second) add_token(vocab, text, TokenType::kNormal, value);
    }
    const auto tokens = make(vocab);
    for (int64_t size : {1, 2, 7, 31, 255}) {
      const std::string text = random_text(random, "aab b ", size);
      std::vector<std::string> parts;
      for (const char c : text) parts.push_back(c == ' ' ? "▁" : std::string(1, c));
      while (true) {
        const std::string* best = nullptr;
        size_t at = 0;
        for (size_t i = 0; i + 1 < parts.size(); ++i) {
          const auto found = score.find(parts[i] + parts[i + 1]);
          if (found == score.end() || (best && score[*best] >= found->second)) continue;
          best = &found->first;
          at = i;
        }
        if (best == nullptr) break;
        parts[at] += parts[at + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      }
      Ids want;
      for (const std::string& part : parts) {
        const TokenId id = id_of(*tokens, part);
        want.push_back(id != kNoToken ? id : id_of(*tokens, fmt::format("<0x{:02X}>", part[0])));
      }
      EXPECT_EQ(tokens->encode(text, {.add_special = false}), want) << text;
    }
  }
}

TEST(Pieces, OfOddTokens) {
  Vocab vocab = small_byte_pairs();
  const TokenId foreign = add_token(vocab, "日本");  // outside the byte alphabet: itself
  const TokenId byte = add_token(vocab, "<0x41>", TokenType::kByte);
  const TokenId not_byte = add_token(vocab, "<0xZZ>", TokenType::kByte);
  const TokenId empty = add_token(vocab, "");
  const auto tokens = make(vocab);
  EXPECT_EQ(tokens->piece(foreign), "日本");
  EXPECT_EQ(tokens->piece(byte), "A");
  EXPECT_EQ(tokens->piece(not_byte), "<0xZZ>");
  EXPECT_EQ(tokens->piece(empty), "");
  EXPECT_EQ(tokens->piece(id_of(*tokens, "[PAD]7"), true), "");
  EXPECT_EQ(tokens->piece(-5), "");
  EXPECT_EQ(tokens->text(static_cast<TokenId>(tokens->size())), "");
}

}  // namespace
}  // namespace lockstep::tokenizer
