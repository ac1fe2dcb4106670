#include "op/rope.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

namespace lockstep::op {
namespace {

Rope plain(int64_t dims) {
  Rope rope;
  rope.head_size = dims;
  rope.dims = dims;
  return rope;
}

TEST(Rope, PlainFrequenciesArePowersOfTheBase) {
  const auto frequencies = rope_frequencies(plain(8));
  ASSERT_EQ(frequencies.size(), 4u);
  for (int i = 0; i < 4; ++i)
    EXPECT_NEAR(frequencies[static_cast<size_t>(i)], std::pow(10.0, -i), 1e-16);
  EXPECT_EQ(rope_magnitude(plain(8)), 1);
}

TEST(Rope, FactorsDivideAndLinearScalingMultiplies) {
  Rope rope = plain(4);
  rope.factors = {1, 8};
  rope.position_scale = 0.25;
  const auto frequencies = rope_frequencies(rope);
  EXPECT_DOUBLE_EQ(frequencies[0], 0.25);
  EXPECT_DOUBLE_EQ(frequencies[1], 0.25 * 0.01 / 8);
}

TEST(Rope, YarnKeepsFastPairsAndInterpolatesSlowOnes) {
  Rope rope = plain(128);
  rope.position_scale = 0.25;
  rope.yarn = Rope::Yarn{.beta_fast = 32, .beta_slow = 1, .original_context = 32768};
  const auto scaled = rope_frequencies(rope);
  const auto own = rope_frequencies(plain(128));
  EXPECT_DOUBLE_EQ(scaled.front(), own.front());
  EXPECT_DOUBLE_EQ(scaled.back(), own.back() * 0.25);
  for (size_t i = 0; i < own.size(); ++i) {
    // A pair that turns more than 32 times over the original context is left alone, one that
    // turns less than once is fully interpolated (each up to the rounding to whole pairs).
    const double turns = own[i] * 32768 / (2 * M_PI);
    const double share = scaled[i] / own[i];
    if (turns > 32 * 1.2) {
      EXPECT_DOUBLE_EQ(share, 1) << i;
    }
    if (turns < 1 / 1.2) {
      EXPECT_DOUBLE_EQ(share, 0.25) << i;
    }
    if (i > 0) {
      EXPECT_LE(share, scaled[i - 1] / own[i - 1] + 1e-15) << i;
    }
  }
  EXPECT_DOUBLE_EQ(rope_magnitude(rope), 1 + 0.1 * std::log(4));
}

TEST(Rope, TheRampOfYarnMayBeginAndEndBetweenPairs) {
  Rope rope = plain(64);  // the numbers of gpt-oss
  rope.base = 150000;
  rope.position_scale = 1.0 / 32;
  rope.yarn =
      Rope::Yarn{.beta_fast = 32, .beta_slow = 1, .original_context = 4096, .whole_pairs = false};
  const auto pair = [](double turns) {
    return 32 * std::log(4096 / (turns * 2 * M_PI)) / std::log(150000.0);
  };
  const double begin = pair(32), end = pair(1);  // 8.09 and 17.4
  Rope other = plain(64);
  other.base = 150000;
  const auto own = rope_frequencies(other), scaled = rope_frequencies(rope);
  for (size_t i = 0; i < own.size(); ++i) {
    const double share = std::clamp((static_cast<double>(i) - begin) / (end - begin), 0.0, 1.0);
    EXPECT_NEAR(scaled[i] / own[i], share / 32 + (1 - share), 1e-14) << i;
  }
  rope.yarn->whole_pairs = true;
  EXPECT_NE(rope_frequencies(rope)[12], scaled[12]);
  EXPECT_EQ(rope_frequencies(rope)[8], scaled[8]);
}

}  // namespace
}  // namespace lockstep::op
