#include "tokenizer/splitter.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "tokenizer/pre_tokenizers.h"

namespace lockstep::tokenizer {
namespace {

using Words = std::vector<std::string>;

Words split(std::string_view pre, std::string_view text) {
  const PreTokenizer* row = find_pre_tokenizer(pre);
  EXPECT_NE(row, nullptr) << pre;
  auto splitter = Splitter::compile(row->patterns);
  EXPECT_TRUE(splitter.ok()) << splitter.error().message;
  Words words;
  for (const std::string_view word : splitter->split(text)) words.emplace_back(word);
  return words;
}

TEST(Splitter, Gpt2) {
  EXPECT_EQ(split("gpt-2", "I'll  go, it's 1234!\n\n x"),
            (Words{"I", "'ll", " ", " go", ",", " it", "'s", " 1234", "!", "\n\n", " x"}));
  EXPECT_EQ(split("gpt-2", "I'LL"), (Words{"I", "'", "LL"}));
  EXPECT_EQ(split("gpt-2", ""), Words());
}

TEST(Splitter, Llama3AndQwen2DifferInDigits) {
  EXPECT_EQ(split("llama-bpe", "it'S 12345\r\n (a)"),
            (Words{"it", "'S", " ", "123", "45", "\r\n", " (", "a", ")"}));
  EXPECT_EQ(split("qwen2", "12 3"), (Words{"1", "2", " ", "3"}));
}

TEST(Splitter, PatternsFollowEachOther) {
  EXPECT_EQ(split("smollm", "a12 3"), (Words{"a", "1", "2", " ", "3"}));
  EXPECT_EQ(split("falcon", "x==12345"), (Words{"x", "==", "123", "45"}));
  EXPECT_EQ(split("deepseek-coder", "a b\n42"), (Words{"a", " b", "\n", "4", "2"}));
}

TEST(Splitter, CaseMattersInTekkenAndGpt4o) {
  EXPECT_EQ(split("tekken", "helloWorldABC"), (Words{"hello", "World", "ABC"}));
  EXPECT_EQ(split("tekken", "éÉ"), (Words{"é", "É"}));
  EXPECT_EQ(split("gpt-4o", "HELLO's don't 1234"), (Words{"HELLO's", " don't", " ", "123", "4"}));
  EXPECT_EQ(split("gpt-4o", "ſ'ſ'd"), (Words{"ſ'ſ", "'d"}));
}

TEST(Splitter, KnowsUnicodeBeyondTheLibrary) {
  EXPECT_EQ(split("qwen2", "a\U00031350b"), (Words{"a\U00031350b"}));  // a letter since 15.0
  EXPECT_EQ(split("gpt-2", "1\U0001e4f0"), (Words{"1\U0001e4f0"}));    // a digit since 15.0
  EXPECT_EQ(split("gpt-2", "\u180e\u180e a"), (Words{"\u180e\u180e", " a"}));  // no white space
  EXPECT_EQ(split("gpt-2", "\u0085\u3000a"), (Words{"\u0085", "\u3000", "a"}));
}

TEST(Splitter, StrayBytesAreNoLetters) {
  EXPECT_EQ(split("gpt-2",
                  "ab\xff\xfe"
                  "cd"),
            (Words{"ab", "\xff\xfe", "cd"}));
  EXPECT_EQ(split("gpt-2", "a\xe5\xa5"), (Words{"a", "\xe5\xa5"}));  // cut off
}

TEST(Splitter, WordsSideBySideAreTheText) {
  std::string list = known_pre_tokenizers() + ", ";
  for (size_t at; (at = list.find(", ")) != std::string::npos; list.erase(0, at + 2)) {
    const std::string pre = list.substr(0, at);
    const auto splitter = Splitter::compile(find_pre_tokenizer(pre)->patterns);
    ASSERT_TRUE(splitter.ok()) << splitter.error().message;
    for (uint64_t seed = 0; seed < 50; ++seed) {
      SCOPED_TRACE(fmt::format("{} {}", pre, seed));
      Random random(seed);
      const char* parts[] = {"a",  "B",    "é", "好", "7",    " ",    "\n", "\r", "'s",
                             "\t", "🦙", "!", "́",   "\xff", "\xe5", "　", "°",  "'LL"};
      std::string text;
      for (int64_t i = random.below(120); i > 0; --i) text += parts[random.below(18)];
      std::string joined;
      for (const std::string_view word : splitter->split(text)) {
        EXPECT_FALSE(word.empty());
        joined += word;
      }
      EXPECT_EQ(joined, text);
    }
  }
}

TEST(Splitter, LongRunsAreOneWord) {
  for (const char* pre : {"gpt-2", "llama-bpe", "qwen2", "tekken", "gpt-4o", "deepseek-v3"}) {
    for (const char* c : {"a", "A", "好", "!", " ", "\n"}) {
      std::string run;
      while (run.size() < 300'000) run += c;
      EXPECT_EQ(split(pre, run), Words{run}) << pre << " " << c;
    }
  }
}

TEST(Splitter, BadPatternIsAnError) {
  const std::string_view patterns[] = {"a("};
  const auto splitter = Splitter::compile(patterns);
  ASSERT_FALSE(splitter.ok());
  EXPECT_NE(splitter.error().message.find("a("), std::string::npos);
}

}  // namespace
}  // namespace lockstep::tokenizer
