#include "cli/model_size.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

TEST(ModelSize, SmallNumbersAreBitsAndOthersBytes) {
  EXPECT_EQ(parse_model_size("4.5")->bits, 4.5);
  EXPECT_EQ(parse_model_size("32")->bits, 32);
  for (const auto& [text, bytes] :
       std::vector<std::pair<std::string, int64_t>>{{"33", 33},
                                                    {"1665856", 1665856},
                                                    {"1.5k", 1500},
                                                    {"400M", 400'000'000},
                                                    {"4GB", 4'000'000'000},
                                                    {"4B", 4},
                                                    {"0.5T", 500'000'000'000}}) {
    const auto size = parse_model_size(text);
    ASSERT_TRUE(size.ok()) << text;
    EXPECT_EQ(size->bits, 0) << text;
    EXPECT_EQ(size->bytes, bytes) << text;
  }
}

TEST(ModelSize, OthersAreErrors) {
  for (const char* text : {"", "M", "B", "-4", "0", "4.5bits", "4,5", "nan", "1e300T", "4 M", "MB"})
    EXPECT_EQ(
        parse_model_size(text).error().message,
        fmt::format("found '{}', expected bits a weight such as 4.5, or bytes such as 400M", text));
}

}  // namespace
}  // namespace lockstep::cli
