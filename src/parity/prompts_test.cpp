#include "parity/prompts.h"

#include <gtest/gtest.h>

namespace lockstep::parity {
namespace {

trace::Manifest prompted(std::vector<int32_t> tokens, int64_t prompt_tokens = -1) {
  trace::Manifest out;
  out.prompt_tokens = prompt_tokens < 0 ? std::ssize(tokens) : prompt_tokens;
  out.tokens = std::move(tokens);
  return out;
}

std::string kind(const trace::Manifest& a, const trace::Manifest& b, TokenKnowledge known = {}) {
  const std::string one = name_difference(a, b, known).kind;
  EXPECT_EQ(name_difference(b, a, known).kind, one) << "whichever side it is on";
  return one;
}

TEST(Prompts, ABosTokenThatOneSideLacks) {
  TokenKnowledge bos;
  bos.bos = 1;
  EXPECT_EQ(kind(prompted({1, 7, 8, 9}), prompted({7, 8, 9}), bos), "bos_missing");
  EXPECT_EQ(kind(prompted({1, 7}), prompted({7}), bos), "bos_missing");
  EXPECT_EQ(kind(prompted({1, 7, 8, 9}), prompted({7, 8, 9})), "bos_missing");
  EXPECT_EQ(name_difference(prompted({1, 7, 8}), prompted({7, 8}), bos).text,
            "the suspect lacks the BOS token 1 that the reference starts with");
  // With what was generated, which may differ.
  EXPECT_EQ(kind(prompted({1, 7, 8, 20, 21}, 3), prompted({7, 8, 30}, 2), bos), "bos_missing");
  EXPECT_EQ(kind(prompted({5, 7, 8, 9}), prompted({7, 8, 9}), bos), "shift") << "5 is no BOS";
}

TEST(Prompts, ADoubledBos) {
  TokenKnowledge bos;
  bos.bos = 1;
  EXPECT_EQ(kind(prompted({1, 1, 7, 8}), prompted({1, 7, 8}), bos), "bos_doubled");
  EXPECT_EQ(name_difference(prompted({1, 7}), prompted({1, 1, 7}), bos).text,
            "the suspect has the BOS token 1 twice at the start");
}

TEST(Prompts, AShiftALongerOneAndATemplate) {
  EXPECT_EQ(kind(prompted({1, 2, 3, 4, 5, 6}), prompted({4, 5, 6})), "shift");
  EXPECT_EQ(kind(prompted({1, 2, 3}), prompted({1, 2, 3, 4})), "longer");
  EXPECT_EQ(kind(prompted({1, 90, 5, 6, 7, 8, 91}), prompted({80, 5, 6, 7, 8})), "template");
  EXPECT_EQ(kind(prompted({1, 2, 3}), prompted({4, 5, 6})), "text");
  EXPECT_EQ(kind(prompted({1}), prompted({2})), "text");
}

TEST(Prompts, TheSameTextCutDifferently) {
  TokenKnowledge known;
  known.text = [](const std::vector<int32_t>& tokens) {
    std::string text;
    for (const int32_t token : tokens) text += std::string(static_cast<size_t>(token), 'a');
    return text;
  };
  EXPECT_EQ(kind(prompted({3, 4}), prompted({2, 5}), known), "tokenization");
  EXPECT_EQ(kind(prompted({3, 4}), prompted({2, 6}), known), "text");
}

TEST(Prompts, OfAnotherModel) {
  trace::Manifest a = prompted({3, 4});
  trace::Manifest b = prompted({5, 6});
  a.model = {"a.gguf", "", "", "x", ""};
  b.model = {"b.gguf", "", "", "y", ""};
  EXPECT_EQ(kind(a, b), "model");
}

TEST(Prompts, LongOnesTakeNoTime) {
  std::vector<int32_t> a(200'000, 3);
  std::vector<int32_t> b(200'000, 4);
  EXPECT_EQ(kind(prompted(a), prompted(b)), "text");
}

}  // namespace
}  // namespace lockstep::parity
