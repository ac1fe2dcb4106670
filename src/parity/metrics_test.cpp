#include "parity/metrics.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "base/random.h"

namespace lockstep::parity {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Stretches are added up in lanes, one number alone is not: both must say the same.
void expect_same(const std::vector<double>& a, const std::vector<double>& b) {
  Metrics together;
  together.add(a, b, 100);
  Metrics alone;
  for (size_t i = 0; i < a.size(); ++i) alone.add(a[i], b[i], 100 + static_cast<int64_t>(i));
  EXPECT_EQ(together.elements, alone.elements);
  EXPECT_EQ(together.differing, alone.differing);
  EXPECT_EQ(together.non_finite_differs, alone.non_finite_differs);
  EXPECT_EQ(together.sign_flips, alone.sign_flips);
  EXPECT_EQ(together.max_difference, alone.max_difference);
  EXPECT_EQ(together.max_index, alone.max_index);
  for (const auto side : {&Metrics::reference, &Metrics::suspect}) {
    EXPECT_EQ((together.*side).nan, (alone.*side).nan);
    EXPECT_EQ((together.*side).infinite, (alone.*side).infinite);
    EXPECT_EQ((together.*side).negative_zero, (alone.*side).negative_zero);
    EXPECT_EQ((together.*side).denormal, (alone.*side).denormal);
  }
  for (const auto sum : {&Metrics::sum_difference, &Metrics::squares_difference,
                         &Metrics::squares_reference, &Metrics::squares_suspect})
    EXPECT_NEAR(together.*sum, alone.*sum, 1e-12 * alone.*sum);
  EXPECT_NEAR(together.products, alone.products, 1e-12 * alone.squares_reference);
}

TEST(Metrics, StretchesSayWhatSingleNumbersSay) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Random random(seed);
  const std::vector<double> odd = {kNan,     kInfinity, -kInfinity, 0.0,      -0.0,
                                   1e-40,    -1e-310,   0x1p-126,   1e200,    -1e300,
                                   0x1p-127, 3.4e38,    1.0,        0x1p-149, -1.0};
  for (const size_t size : {1u, 7u, 63u, 64u, 65u, 255u, 257u, 1024u}) {
    std::vector<double> a(size);
    for (double& x : a) x = random.gaussian();
    std::vector<double> b = a;
    expect_same(a, b);
    for (double& x : b) x *= 1 + 1e-3 * random.gaussian();
    expect_same(a, b);
    // Equal differences: the first one counts.
    std::vector<double> shifted(size, 3);
    expect_same(std::vector<double>(size, 2), shifted);
    for (int i = 0; i < 20; ++i) {
      std::vector<double> x = a;
      std::vector<double> y = b;
      const auto place = [&] {
        return static_cast<size_t>(random.below(static_cast<int64_t>(size)));
      };
      const auto value = [&] {
        return odd[static_cast<size_t>(random.below(static_cast<int64_t>(odd.size())))];
      };
      for (int k = 0; k < 3; ++k) {
        if (random.below(2) == 0) x[place()] = value();
        if (random.below(2) == 0) y[place()] = value();
        const size_t both = place();
        if (random.below(2) == 0) x[both] = y[both] = value();
      }
      // Squares beyond the largest double say nothing about each other.
      for (size_t k = 0; k < size; ++k)
        if (std::fabs(x[k]) > 1e150 && std::isfinite(x[k])) x[k] = y[k] = 1e150;
      for (size_t k = 0; k < size; ++k)
        if (std::fabs(y[k]) > 1e150 && std::isfinite(y[k])) x[k] = y[k] = 1e150;
      expect_same(x, y);
    }
  }
}

}  // namespace
}  // namespace lockstep::parity
