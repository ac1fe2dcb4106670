#include "engine/logprobs.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace lockstep::engine {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

Logprobs of(const std::vector<double>& logits, exec::TokenId chosen, int64_t top) {
  return logprobs_of({DType::kF64, logits.data(), {1, std::ssize(logits)}}, 0, chosen, top);
}

TEST(Logprobs, AreThoseOfSoftmax) {
  const Logprobs out = of({1000, 1000 + std::log(2), 1000 + std::log(5)}, 0, 2);
  EXPECT_NEAR(out.chosen, std::log(1 / 8.0), 1e-12);
  ASSERT_EQ(out.top.size(), 2u);
  EXPECT_EQ(out.top[0].id, 2);
  EXPECT_NEAR(out.top[0].value, std::log(5 / 8.0), 1e-12);
  EXPECT_EQ(out.top[1].id, 1);
}

TEST(Logprobs, TiesByIdAndNoMoreThanThereAre) {
  const Logprobs out = of({1, 1, 1}, 2, 20);
  ASSERT_EQ(out.top.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(out.top[static_cast<size_t>(i)].id, i);
  EXPECT_TRUE(of({1, 2}, 0, 0).top.empty());
}

TEST(Logprobs, StrangeLogits) {
  const Logprobs one = of({kInfinite, 3, -kInfinite, std::nan("")}, 0, 4);
  EXPECT_EQ(one.chosen, 0);
  ASSERT_EQ(one.top.size(), 3u);
  EXPECT_EQ(one.top[1].value, -kInfinite);
  EXPECT_NEAR(of({kInfinite, kInfinite}, 1, 0).chosen, std::log(0.5), 1e-12);
  EXPECT_NEAR(of({-kInfinite, -kInfinite}, 1, 0).chosen, std::log(0.5), 1e-12);
  EXPECT_EQ(of({std::nan(""), std::nan("")}, 0, 5).chosen, -kInfinite);
}

TEST(Logprobs, TheRowThatIsAskedFor) {
  const std::vector<double> logits = {5, 0, 0, 5};
  const View view{DType::kF64, logits.data(), {2, 2}};
  EXPECT_EQ(logprobs_of(view, 0, 0, 1).top[0].id, 0);
  EXPECT_EQ(logprobs_of(view, 1, 0, 1).top[0].id, 1);
}

}  // namespace
}  // namespace lockstep::engine
