#include "cli/number_list.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using Numbers = std::vector<int64_t>;

TEST(NumberList, NumbersAndRangesInAnyOrderEachOnce) {
  EXPECT_EQ(*parse_number_list("7"), Numbers({7}));
  EXPECT_EQ(*parse_number_list("5,0,3-4"), Numbers({0, 3, 4, 5}));
  EXPECT_EQ(*parse_number_list("2-5,4-6,5"), Numbers({2, 3, 4, 5, 6}));
  EXPECT_EQ(*parse_number_list("3-3"), Numbers({3}));
}

TEST(NumberList, AnythingElseIsToldWithItsPart) {
  for (const char* text : {"", ",", "1,", "-1", "1-", "5-3", "a", "1 2", "1-2-3", "+1", "0x1",
                           "99999999999999999999", "0-16777216", "0-16777215,0-16777215"}) {
    const auto outcome = parse_number_list(text);
    ASSERT_FALSE(outcome.ok()) << text;
    EXPECT_NE(outcome.error().message.find('\''), std::string::npos);
  }
}

TEST(NumberList, TokenIdsKeepTheirOrder) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(*parse_token_ids("7"), Ids({7}));
  EXPECT_EQ(*parse_token_ids("3,1,3"), Ids({3, 1, 3}));
  EXPECT_EQ(*parse_token_ids(" 3 , 1 3 "), Ids({3, 1, 3}));
  EXPECT_EQ(*parse_token_ids("2147483647"), Ids({2147483647}));
  for (const char* text : {"", " ", ",", "1,", ",1", "1,,2", "1, ,2", "a", "1.0", "-1",
                           "2147483648", "99999999999999999999", "+1", "0x1"}) {
    const auto outcome = parse_token_ids(text);
    ASSERT_FALSE(outcome.ok()) << text;
    EXPECT_NE(outcome.error().message.find("expected token ids from 0 to 2147483647"),
              std::string::npos)
        << outcome.error().message;
  }
}

TEST(NumberList, CountsHaveABound) {
  EXPECT_EQ(*parse_counts("128,512,0"), Numbers({128, 512, 0}));
  EXPECT_TRUE(parse_counts("1073741824").ok());
  EXPECT_FALSE(parse_counts("1073741825").ok());
  EXPECT_FALSE(parse_counts("").ok());
}

TEST(Part, FromOneToTheirNumber) {
  EXPECT_EQ(*parse_part("1/1"), (std::pair<int64_t, int64_t>(1, 1)));
  EXPECT_EQ(*parse_part("7/255"), (std::pair<int64_t, int64_t>(7, 255)));
  for (const char* wrong : {"", "/", "1", "0/2", "3/2", "1/", "/1", "-1/2", "1/2/3", " 1/2", "1/0"})
    EXPECT_FALSE(parse_part(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace lockstep::cli
