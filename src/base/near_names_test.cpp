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

}  // namespace
}  // namespace lockstep
