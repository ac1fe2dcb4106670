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

}  // namespace
}  // namespace lockstep::cli
