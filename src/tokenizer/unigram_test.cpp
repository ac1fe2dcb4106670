// Unigram vocabularies of GGUF files, as llama.cpp has them; those of folders are in hub/.
#include <gtest/gtest.h>

#include "tokenizer/test_vocabs.h"
#include "tokenizer/tokenizer.h"

namespace lockstep::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> of_unigram(Vocab vocab) {
  auto made = Tokenizer::create(std::move(vocab));
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(*made);
}

TEST(Unigram, TheBestSumOfScoresWins) {
  Vocab vocab = small_unigram();
  const auto tokens = of_unigram(vocab);
  // <pad> 0, </s> 1, <unk> 2, then mark 3, a 4, b 5, ab 6, mark+a 7, bb 8, tool 9
  EXPECT_EQ(tokens->encode("a"), (Ids{7, 1}));
  EXPECT_EQ(tokens->encode("ab"), (Ids{7, 5, 1}));           // -3 -2 and not -2 -6
  EXPECT_EQ(tokens->encode("xyz b"), (Ids{3, 2, 3, 5, 1}));  // what is unknown is one token
  EXPECT_EQ(tokens->encode("a<tool>b", {.add_special = false}), (Ids{7, 9, 3, 5}));
  EXPECT_EQ(tokens->encode("\xff", {.add_special = false}), (Ids{3, 2}));
  EXPECT_EQ(tokens->encode("", {.add_special = false}), Ids{});
  EXPECT_EQ(tokens->decode({7, 5, 3, 4}), "ab a");
  EXPECT_FALSE(tokens->adds_bos());
}

TEST(Unigram, SpacesMayCountOnce) {
  Vocab vocab = small_unigram();
  vocab.add_eos = false;
  EXPECT_EQ(of_unigram(vocab)->encode(" a  b "), (Ids{3, 7, 3, 3, 5, 3}));
  vocab.merge_spaces = true;
  EXPECT_EQ(of_unigram(vocab)->encode(" a  b "), (Ids{7, 3, 5}));
  vocab.merge_spaces = false;
  vocab.add_space_prefix = false;
  EXPECT_EQ(of_unigram(vocab)->encode("a b"), (Ids{4, 3, 5}));
}

TEST(Unigram, NeedsItsUnknownToken) {
  Vocab vocab;
  vocab.origin = "small";
  vocab.family = Family::kUnigram;
  add_token(vocab, "a");
  const auto made = Tokenizer::create(vocab);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message,
            "small: the vocabulary has no unknown token (tokenizer.ggml.unknown_token_id)");
}

}  // namespace
}  // namespace lockstep::tokenizer
