#include "quality/statistics.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"

namespace lockstep::quality {
namespace {

std::vector<int64_t> runs_of(int64_t tokens) {
  return number_blocks(std::vector<int64_t>{tokens});
}

TEST(NumberBlocks, BlocksAreNearTheirSizeAndStayInTheirRun) {
  for (const int64_t run : std::vector<int64_t>{1, 7, 31, 32, 33, 255, 257}) {
    const std::vector<int64_t> numbers = number_blocks(std::vector<int64_t>{run, 0, run});
    ASSERT_EQ(numbers.size(), static_cast<size_t>(2 * run));
    EXPECT_EQ(numbers.front(), 0);
    EXPECT_LT(numbers[static_cast<size_t>(run - 1)], numbers[static_cast<size_t>(run)]);
    for (size_t i = 1; i < numbers.size(); ++i) {
      EXPECT_GE(numbers[i], numbers[i - 1]);
      EXPECT_LE(numbers[i], numbers[i - 1] + 1);
    }
    for (int64_t block = 0; block <= numbers.back(); ++block) {
      const auto size = std::ranges::count(numbers, block);
      EXPECT_GE(size, std::min(run, kBlockTokens / 2));
      EXPECT_LE(size, 2 * kBlockTokens);
    }
  }
}

TEST(Blocks, OneBlockHasNoInterval) {
  const Blocks blocks(runs_of(7));
  const std::vector<double> values = {3, 1, 2, 5, 4, 7, 6};
  const Interval mean = blocks.mean(values);
  EXPECT_EQ(mean.value, 4);
  EXPECT_TRUE(std::isnan(mean.low) && std::isnan(mean.high));
  EXPECT_EQ(blocks.quantile(values, 0.5).value, 4);
  EXPECT_EQ(blocks.quantile(values, 0.99).value, 7);
  EXPECT_EQ(blocks.quantile(values, 0).value, 1);
}

TEST(Blocks, EqualValuesLeaveNoDoubt) {
  const Blocks blocks(runs_of(257));
  const std::vector<double> values(257, 0.25);
  for (const Interval& interval : {blocks.mean(values), blocks.quantile(values, 0.99)}) {
    EXPECT_EQ(interval.value, 0.25);
    EXPECT_EQ(interval.low, 0.25);
    EXPECT_EQ(interval.high, 0.25);
  }
  EXPECT_DOUBLE_EQ(blocks.exp_of_mean(values).value, std::exp(0.25));
}

// Values that are alike within a block: intervals that took tokens for independent would be far too
// narrow, and would miss the truth most of the time.
TEST(Blocks, IntervalsHoldTheTruthAsOftenAsTheySay) {
  Random random(5);
  int mean_held = 0, median_held = 0;
  constexpr int kTexts = 200;
  for (int text = 0; text < kTexts; ++text) {
    const std::vector<int64_t> numbers = runs_of(40 * kBlockTokens);
    std::vector<double> values;
    double common = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (i == 0 || numbers[i] != numbers[i - 1]) common = random.gaussian();
      values.push_back(common + 0.1 * random.gaussian());
    }
    const Blocks blocks(numbers);
    const Interval mean = blocks.mean(values), median = blocks.quantile(values, 0.5);
    mean_held += mean.low <= 0 && 0 <= mean.high;
    median_held += median.low <= 0 && 0 <= median.high;
  }
  EXPECT_GE(mean_held, kTexts * 88 / 100);
  EXPECT_LE(mean_held, kTexts * 99 / 100);
  EXPECT_GE(median_held, kTexts * 86 / 100);
}

}  // namespace
}  // namespace lockstep::quality
