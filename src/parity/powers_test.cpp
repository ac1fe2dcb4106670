#include "parity/powers.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "parity/noise_test_support.h"

namespace lockstep::parity {
namespace {

TEST(Powers, AreThoseOfTheMathematicalLibrary) {
  Random random(fresh_seed());
  for (const size_t count : {size_t{1}, size_t{7}, size_t{8}, size_t{255}, size_t{257}}) {
    std::vector<double> logits(count);
    const double scale = std::exp(3 * random.gaussian());
    for (double& logit : logits) logit = scale * random.gaussian();
    const Powers powers(logits);
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      const double expected = std::exp(logits[i] - powers.largest);
      sum += expected;
      ASSERT_NEAR(powers.each[i], expected, 1e-15 * expected + 1e-300)
          << logits[i] - powers.largest << ", seed " << fresh_seed();
    }
    EXPECT_NEAR(powers.sum, sum, 1e-13 * sum);
    EXPECT_NEAR(powers.log_of_all(), powers.largest + std::log(sum), 1e-12);
  }
}

TEST(Powers, Edges) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const double least = std::numeric_limits<double>::denorm_min();
  const Powers powers(std::vector<double>{0.0, -0.0, -least, -kInfinite, -707.9, -708.1, -1e308});
  const std::vector<double> expected = {1, 1, 1, 0, std::exp(-707.9), 0, 0};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(powers.each[i], expected[i], 1e-15 * expected[i]) << i;
  EXPECT_EQ(powers.sum, 3);
  EXPECT_TRUE(std::isnan(Powers(std::vector<double>{std::nan(""), 1.0}).sum));
  // Where nothing is left there is no distribution.
  EXPECT_TRUE(std::isnan(Powers(std::vector<double>{-kInfinite, -kInfinite}).sum));
}

}  // namespace
}  // namespace lockstep::parity
