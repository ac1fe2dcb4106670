#include "exec/reference/sums.h"

#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace lockstep::exec::reference {
namespace {

constexpr double kUnit = 0x1p-53;

struct Exact {
  long double sum = 0;
  long double lost = 0;
  double squares = 0;

  void add(long double term) {
    const long double next = sum + term;
    const long double part = next - sum;
    lost += (sum - (next - part)) + (term - part);
    sum = next;
    squares += static_cast<double>(term * term);
  }
  double error(double of) const {
    return static_cast<double>(static_cast<long double>(of) - sum - lost);
  }
};

// What an engine that adds one after another is granted grows with the length; this does not.
TEST(ReferenceSums, ErrorsDoNotGrowWithTheLength) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  Random random(seed);
  for (const int64_t n : {1, 7, 8, 9, 255, 256, 257, 4096, 65537, 300001})
    for (const char* kind : {"gaussian", "100 +- 1", "constant", "outlier", "cancelling"}) {
      const std::string name = kind;
      std::vector<double> a, b;
      for (int64_t i = 0; i < n; ++i) {
        a.push_back(random.gaussian());
        b.push_back(random.gaussian());
        if (name == "100 +- 1") a.back() += 100, b.back() = 1;
        if (name == "constant") a.back() = 0.1, b.back() = 0.3;
        if (name == "cancelling") b.back() = i % 2 == 0 ? 1e8 : -1e8;
      }
      if (name == "outlier") a[static_cast<size_t>(random.below(n))] = 1e12;
      Exact exact;
      Sum sum;
      Exact exact_sum;
      for (size_t i = 0; i < a.size(); ++i) {
        exact.add(static_cast<long double>(a[i]) * static_cast<long double>(b[i]));
        sum.add(a[i] * b[i]);
        exact_sum.add(static_cast<long double>(a[i] * b[i]));
      }
      SCOPED_TRACE(::testing::Message() << n << " terms, " << name << ", seed " << seed);
      const double size = std::fabs(static_cast<double>(exact.sum));
      EXPECT_LE(std::fabs(exact.error(dot(a.data(), b.data(), n))),
                kUnit * (8 * size + 8 * std::sqrt(exact.squares)));
      EXPECT_LE(std::fabs(exact_sum.error(sum.value())), kUnit * size * 1.01);
    }
}

TEST(ReferenceSums, InfinitiesAndNansStay) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<double> ones(600, 1);
  std::vector<double> x(600, 2);
  EXPECT_EQ(dot(x.data(), ones.data(), 600), 1200);
  x[300] = kInfinity;
  EXPECT_EQ(dot(x.data(), ones.data(), 600), kInfinity);
  x[301] = -kInfinity;
  EXPECT_TRUE(std::isnan(dot(x.data(), ones.data(), 600)));
  Sum sum;
  sum.add(1);
  sum.add(-kInfinity);
  sum.add(1);
  EXPECT_EQ(sum.value(), -kInfinity);
  EXPECT_EQ(Sum().value(), 0);
  EXPECT_EQ(dot(x.data(), ones.data(), 0), 0);
}

}  // namespace
}  // namespace lockstep::exec::reference
