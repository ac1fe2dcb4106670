#include "quality/distributions.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"

namespace lockstep::quality {
namespace {

std::vector<float> random_logits(Random& random, int64_t size, double scale) {
  std::vector<float> out(static_cast<size_t>(size));
  for (float& x : out) x = static_cast<float>(scale * random.gaussian());
  return out;
}

std::vector<double> log_probabilities(const std::vector<float>& logits) {
  const double most = static_cast<double>(*std::ranges::max_element(logits));
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - most);
  std::vector<double> out;
  for (const float x : logits) out.push_back(static_cast<double>(x) - most - std::log(sum));
  return out;
}

TEST(Score, AgreesWithDoublePrecision) {
  Random random(1);
  for (const int64_t size : std::vector<int64_t>{1, 2, 7, 255, 256, 257, 1027})
    for (const double scale : {0.1, 3.0, 40.0})
      for (const double noise : {0.0, 1e-3, 0.1, 2.0}) {
        const std::vector<float> p = random_logits(random, size, scale);
        std::vector<float> q = p;
        for (float& x : q) x += static_cast<float>(noise * random.gaussian());
        const auto token = static_cast<exec::TokenId>(random.below(size));
        const TokenScore found = score(p, q, token);
        const auto log_p = log_probabilities(p), log_q = log_probabilities(q);
        double kl = 0;
        for (size_t i = 0; i < p.size(); ++i) kl += std::exp(log_p[i]) * (log_p[i] - log_q[i]);
        const double near = 3e-7 * (1 + scale);
        EXPECT_NEAR(found.kl, std::max(kl, 0.0), near + 1e-6 * kl);
        EXPECT_GE(found.kl, 0);
        if (noise == 0) {
          EXPECT_EQ(found.kl, 0);
        }
        EXPECT_NEAR(found.reference, -log_p[static_cast<size_t>(token)], 2e-6 * (1 + scale));
        EXPECT_NEAR(found.suspect, -log_q[static_cast<size_t>(token)], 2e-6 * (1 + scale + noise));
        EXPECT_EQ(found.same, std::ranges::max_element(p) - p.begin() ==
                                  std::ranges::max_element(q) - q.begin());
      }
}

TEST(Score, ALevelThatAllLogitsShareCountsNothing) {
  Random random(2);
  const std::vector<float> p = random_logits(random, 257, 4);
  std::vector<float> q = p;
  for (float& x : q) x += 64;
  EXPECT_NEAR(score(p, q, 3).kl, 0, 1e-6);
  EXPECT_TRUE(score(p, q, 3).same);
}

TEST(LogitRows, RowsOfAnyTypeAreAppended) {
  const std::vector<float> singles = {1, 2, 3};
  const std::vector<double> doubles = {4, 5, 6, 7, 8, 9};
  LogitRows rows;
  rows.append({DType::kF32, singles.data(), {1, 3}});
  rows.append({DType::kF64, doubles.data(), {2, 3}});
  EXPECT_EQ(rows.rows(), 3);
  EXPECT_EQ(rows.row(2)[1], 8);
  EXPECT_TRUE(check_finite(rows, "x").ok());
  rows.values[4] = std::nanf("");
  EXPECT_EQ(check_finite(rows, "x.gguf").error().message,
            "x.gguf: some logits of this text are not finite, so there are no probabilities; "
            "'lockstep run --trace' and 'lockstep scan' find where they come from");
}

}  // namespace
}  // namespace lockstep::quality
