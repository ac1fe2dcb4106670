#include "base/near_names.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Names = std::vector<std::string>;

const Names kNames = {"token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight",
                      "blk.1.attn_q.weight", "output.weight"};

TEST(NearNames, FindsMisspellings) {
  EXPECT_EQ(near_names("blk.0.atn_q.weight", kNames, 1), (Names{"blk.0.attn_q.weight"}));
  EXPECT_EQ(near_names("blk.0.attn_q.wieght", kNames),
            (Names{"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.1.attn_q.weight"}));
  EXPECT_EQ(near_names("outputweight", kNames), (Names{"output.weight"}));
}

TEST(NearNames, FindsParts) {
  EXPECT_EQ(near_names("embd", kNames), (Names{"token_embd.weight"}));
  EXPECT_EQ(near_names("attn_q", kNames), (Names{"blk.0.attn_q.weight", "blk.1.attn_q.weight"}));
}

TEST(NearNames, FindsNothingWhereNothingIsLike) {
  EXPECT_EQ(near_names("completely different", kNames), Names{});
  EXPECT_EQ(near_names("", kNames), Names{});
  EXPECT_EQ(near_names("x", Names{}), Names{});
  EXPECT_EQ(near_names(std::string(100000, 'a'), kNames), Names{});
}

TEST(NearNames, NeighboursThatSwappedAreOneSlip) {
  EXPECT_EQ(near_names("abdc", Names{"abcd", "axyd"}), Names{"abcd"});
  EXPECT_EQ(near_names("ba", Names{"ab"}), Names{"ab"});
}

TEST(NearestNames, OnlyTheNearest) {
  const Names options = {"--temp",       "--top-k", "--top-p", "--min-p",
                         "--max-tokens", "--model", "-m"};
  EXPECT_EQ(nearest_names("--tmp", options), Names{"--temp"});
  EXPECT_EQ(nearest_names("--tpm", options), Names{"--temp"});
  EXPECT_EQ(nearest_names("--temperature", options), Names{});
  EXPECT_EQ(nearest_names("--top", options), (Names{"--top-k", "--top-p"}));
  EXPECT_EQ(nearest_names("--topk", options), (Names{"--top-k"}));
  EXPECT_EQ(nearest_names("--max", options), Names{"--max-tokens"});
  EXPECT_EQ(nearest_names("--mdoel", options), Names{"--model"});
  EXPECT_EQ(nearest_names("comprae", Names{"capture", "compare", "completion"}), Names{"compare"});
}

TEST(NearestNames, NothingForOneLetterAndForNothingLikeIt) {
  const Names options = {"--temp", "-m", "-n"};
  EXPECT_EQ(nearest_names("-x", options), Names{});
  EXPECT_EQ(nearest_names("", options), Names{});
  EXPECT_EQ(nearest_names("--quality", options), Names{});
  EXPECT_EQ(nearest_names(std::string(100000, '-'), options), Names{});
  EXPECT_EQ(nearest_names("--temp", Names{std::string(100000, '-')}), Names{});
}

}  // namespace
}  // namespace lockstep
