#include "parity/at_least_row.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "parity/noise_test_support.h"

namespace lockstep::parity {
namespace {

// Many columns at once, in vector registers, and one by one: the same numbers.
TEST(AtLeastRow, HasTheSameNumbersForAnyNumberOfColumns) {
  Random random(fresh_seed());
  for (const int64_t columns : {1, 2, 7, 8, 31, 255, 257})
    for (const int kind : {0, 1, 2, 3, 4, 5}) {
      SCOPED_TRACE(fmt::format("{} columns, kind {}, seed {}", columns, kind, fresh_seed()));
      const auto count = static_cast<size_t>(columns);
      std::vector<double> y(count), bias(count), many(count), one(count);
      std::vector<float> estimates[6];
      for (size_t i = 0; i < count; ++i) {
        y[i] = random.gaussian();
        bias[i] = random.below(2) == 0 ? 0 : random.gaussian();
        if (random.below(40) == 0) y[i] = std::numeric_limits<double>::infinity();
        if (random.below(40) == 0) y[i] = std::nan("");
      }
      for (auto& each : estimates)
        for (size_t i = 0; i < count; ++i) {
          const double size = std::exp(10 * random.gaussian());
          each.push_back(static_cast<float>(random.gaussian() * random.gaussian() * size));
        }
      for (const size_t i : {size_t{2}, size_t{3}, size_t{4}})
        for (float& number : estimates[i]) number = std::fabs(number);
      AtLeastRow row;
      row.error = 1e-5;
      row.n = 512;
      row.block_share = 0.125;
      row.compute = 0x1p-24;
      row.handed_on = random.below(2) == 0 ? 0x1p-11 : 0;
      row.bias_unit = random.below(2) == 0 ? 0x1p-8 : 0;
      row.of_terms = 1e-15;
      row.of_added = 1e-12;
      row.of_small_floats = 1e-9;
      row.sums_scale = 4;
      row.squares_scale = 16;
      row.chance_scale = 0.5;
      row.known_scale = 2;
      row.deviation = 1.7;
      const auto place = [&](size_t i) {
        AtLeastRow out = row;
        out.y = y.data() + i;
        out.bias = bias.data() + i;
        if (kind % 3 > 0) out.squares = estimates[3].data() + i;
        if (kind % 3 == 2) {
          out.sums = estimates[0].data() + i;
          out.partial = estimates[1].data() + i;
          out.partial_squares = estimates[2].data() + i;
        }
        if (kind >= 3) {
          out.chance = estimates[4].data() + i;
          out.known = estimates[5].data() + i;
        }
        return out;
      };
      AtLeastRow all = place(0);
      all.columns = columns;
      all.out = many.data();
      write_at_least(all);
      for (size_t i = 0; i < count; ++i) {
        AtLeastRow single = place(i);
        single.columns = 1;
        single.out = &one[i];
        write_at_least(single);
        EXPECT_EQ(many[i], one[i]);
        EXPECT_GE(many[i], 0);
        if (!std::isfinite(y[i])) {
          EXPECT_EQ(many[i], 0);
        }
      }
    }
}

TEST(AtLeastRow, TellsWhatIsBeyondChance) {
  Random random(fresh_seed());
  for (size_t count = 1; count <= 32; ++count) {
    SCOPED_TRACE(fmt::format("{} elements, seed {}", count, fresh_seed()));
    std::vector<double> recorded(count), replayed(count);
    std::vector<float> chance(count);
    uint32_t expected = 0;
    const double limit = std::exp(random.gaussian());
    for (size_t i = 0; i < count; ++i) {
      recorded[i] = random.gaussian();
      replayed[i] = random.gaussian();
      if (random.below(10) == 0) recorded[i] = std::nan("");
      if (random.below(10) == 0) recorded[i] = std::numeric_limits<double>::infinity();
      chance[i] = static_cast<float>(std::exp(random.gaussian()));
      const double error = recorded[i] - replayed[i];
      if (error * error > limit * static_cast<double>(chance[i])) expected |= uint32_t{1} << i;
    }
    EXPECT_EQ(beyond_chance({.count = static_cast<int64_t>(count),
                             .recorded = recorded.data(),
                             .replayed = replayed.data(),
                             .chance = chance.data(),
                             .limit = limit}),
              expected);
  }
}

}  // namespace
}  // namespace lockstep::parity
