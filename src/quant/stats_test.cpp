#include "quant/stats.h"

#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace lockstep::quant {
namespace {

Stats measure_floats(const std::vector<float>& x) {
  return measure(Format::kF32, reinterpret_cast<const std::byte*>(x.data()),
                 static_cast<int64_t>(x.size()));
}

TEST(Stats, AgreeWithTwoPasses) {
  const uint64_t seed = 41;
  Random random(seed);
  for (const size_t n : {1u, 7u, 255u, 257u, 16384u, 16385u, 100003u}) {
    SCOPED_TRACE(fmt::format("seed {} n {}", seed, n));
    std::vector<float> x(n);
    for (float& value : x) value = static_cast<float>(1000 + random.gaussian());
    x[n / 2] = 0;
    double sum = 0, squares = 0;
    for (const float value : x) sum += static_cast<double>(value);
    const double mean = sum / static_cast<double>(n);
    for (const float value : x) squares += std::pow(static_cast<double>(value) - mean, 2);
    const Stats stats = measure_floats(x);
    EXPECT_EQ(stats.values, static_cast<int64_t>(n));
    EXPECT_EQ(stats.zeros, 1);
    EXPECT_EQ(stats.non_finite, 0);
    EXPECT_EQ(stats.first_non_finite, -1);
    EXPECT_EQ(stats.min, *std::min_element(x.begin(), x.end()));
    EXPECT_EQ(stats.max, *std::max_element(x.begin(), x.end()));
    EXPECT_NEAR(stats.mean, mean, 1e-9);
    EXPECT_NEAR(stats.deviation(), std::sqrt(squares / static_cast<double>(n)), 1e-9);
  }
}

TEST(Stats, LeaveNonFiniteValuesOut) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x(40000, 2.0f);
  x[0] = -0.0f;
  x[1] = 4.0f;
  x[20000] = inf;
  x[30000] = std::nanf("");
  x[39999] = -inf;
  const Stats stats = measure_floats(x);
  EXPECT_EQ(stats.values, 40000);
  EXPECT_EQ(stats.non_finite, 3);
  EXPECT_EQ(stats.first_non_finite, 20000);
  EXPECT_EQ(stats.zeros, 1);
  EXPECT_EQ(stats.min, 0);
  EXPECT_EQ(stats.max, 4);
  EXPECT_NEAR(stats.mean, 2, 1e-9);
  EXPECT_EQ(measure_floats({}).values, 0);
  const Stats none = measure_floats({inf, inf});
  EXPECT_EQ(none.deviation(), 0);
  EXPECT_EQ(none.first_non_finite, 0);
}

}  // namespace
}  // namespace lockstep::quant
