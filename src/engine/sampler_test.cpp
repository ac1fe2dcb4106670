#include "engine/sampler.h"

#include <cmath>
#include <limits>
#include <map>

#include <gtest/gtest.h>

namespace lockstep::engine {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TokenId choose(const std::vector<double>& logits, const Sampling& sampling,
               const std::vector<TokenId>& history = {}) {
  const View view{DType::kF64, logits.data(), {1, static_cast<int64_t>(logits.size())}};
  return *Sampler(sampling).choose(view, 0, history);
}

std::map<TokenId, int> counts(const std::vector<double>& logits, const Sampling& sampling,
                              int draws) {
  const View view{DType::kF64, logits.data(), {1, static_cast<int64_t>(logits.size())}};
  Sampler sampler(sampling);
  std::map<TokenId, int> seen;
  for (int i = 0; i < draws; ++i) ++seen[*sampler.choose(view, 0, {})];
  return seen;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestIdOfATie) {
  EXPECT_EQ(choose({1, 3, 2}, {}), 1);
  EXPECT_EQ(choose({1, 3, 3, 3}, {}), 1);
  EXPECT_EQ(choose({-0.0, 0.0}, {}), 0);
  EXPECT_EQ(choose({kNan, -5, kNan}, {}), 1);
  EXPECT_EQ(choose({-kInfinity, -kInfinity}, {}), 0);
  EXPECT_EQ(choose({1, kInfinity}, {}), 1);
}

TEST(Sampler, OnlyNanIsAnError) {
  const std::vector<double> logits = {kNan, kNan};
  const View view{DType::kF64, logits.data(), {1, 2}};
  EXPECT_FALSE(Sampler({}).choose(view, 0, {}).ok());
}

TEST(Sampler, ReadsTheGivenRowInFloat) {
  const std::vector<float> logits = {9, 0, 0, 1, 2, 3};
  const View view{DType::kF32, logits.data(), {2, 3}};
  EXPECT_EQ(*Sampler({}).choose(view, 0, {}), 0);
  EXPECT_EQ(*Sampler({}).choose(view, 1, {}), 2);
}

TEST(Sampler, DrawsByProbability) {
  const std::vector<double> logits = {std::log(0.5), std::log(0.3), std::log(0.2)};
  Sampling sampling;
  sampling.temperature = 1;
  const int draws = 100000;
  const auto seen = counts(logits, sampling, draws);
  // Six standard deviations: fails once in a billion seeds, and the seed is fixed.
  const auto near = [&](TokenId id, double p) {
    EXPECT_NEAR(seen.at(id), p * draws, 6 * std::sqrt(draws * p * (1 - p)));
  };
  near(0, 0.5);
  near(1, 0.3);
  near(2, 0.2);
}

TEST(Sampler, TemperatureSharpens) {
  Sampling sampling;
  sampling.temperature = 0.5;  // squares the odds: 4 to 1
  const auto seen = counts({std::log(2), 0}, sampling, 100000);
  EXPECT_NEAR(seen.at(0), 80000, 6 * std::sqrt(100000 * 0.8 * 0.2));
}

TEST(Sampler, FiltersKeepWhatTheySay) {
  const std::vector<double> logits = {std::log(0.4), std::log(0.3), std::log(0.2), std::log(0.1)};
  const auto ids = [&](auto change) {
    Sampling sampling;
    sampling.temperature = 1;
    change(sampling);
    std::vector<TokenId> kept;
    for (const auto& [id, count] : counts(logits, sampling, 5000)) kept.push_back(id);
    return kept;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(ids([](Sampling& s) { s.top_k = 2; }), (Ids{0, 1}));
  EXPECT_EQ(ids([](Sampling& s) { s.top_k = 100; }), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(ids([](Sampling& s) { s.top_p = 0.65; }), (Ids{0, 1}));
  EXPECT_EQ(ids([](Sampling& s) { s.top_p = 1e-9; }), (Ids{0}));
  EXPECT_EQ(ids([](Sampling& s) { s.min_p = 0.45; }), (Ids{0, 1, 2}));
  EXPECT_EQ(ids([](Sampling& s) { s.min_p = 1; }), (Ids{0}));
}

TEST(Sampler, PenaltyPushesRecentTokensDownWhateverTheirSign) {
  Sampling sampling;
  sampling.repeat_penalty = 2;
  EXPECT_EQ(choose({4, 3}, sampling, {0}), 1);
  EXPECT_EQ(choose({-1, -1.5}, sampling, {0}), 1);
  EXPECT_EQ(choose({4, 3}, sampling, {0, 0, 0}), 1) << "once, however often it was seen";
  EXPECT_EQ(choose({4, 1.5}, sampling, {0, 0}), 0);
  sampling.repeat_window = 1;
  EXPECT_EQ(choose({4, 3}, sampling, {0, 1}), 0) << "out of the window";
}

TEST(Sampler, SeedDecides) {
  const std::vector<double> logits(1000, 0.0);
  Sampling sampling;
  sampling.temperature = 1;
  sampling.seed = 7;
  // The same on every machine: SplitMix64 seeded with its own first number for seed 7.
  EXPECT_EQ(choose(logits, sampling), 721);
  EXPECT_EQ(choose(logits, sampling), choose(logits, sampling));
  Sampling other = sampling;
  other.seed = 8;
  EXPECT_NE(choose(logits, sampling), choose(logits, other));
}

TEST(Sampler, OutOfRangeIsNamed) {
  const auto message = [](auto change) {
    Sampling sampling;
    change(sampling);
    const auto outcome = check(sampling);
    return outcome.ok() ? "" : outcome.error().message;
  };
  EXPECT_EQ(message([](Sampling&) {}), "");
  EXPECT_NE(message([](Sampling& s) { s.temperature = -1; }).find("temperature is -1"),
            std::string::npos);
  EXPECT_NE(message([](Sampling& s) { s.temperature = kNan; }).find("temperature"),
            std::string::npos);
  EXPECT_NE(message([](Sampling& s) { s.top_p = 0; }).find("top_p"), std::string::npos);
  EXPECT_NE(message([](Sampling& s) { s.min_p = 1.5; }).find("min_p"), std::string::npos);
  EXPECT_NE(message([](Sampling& s) { s.top_k = -1; }).find("top_k"), std::string::npos);
  EXPECT_NE(message([](Sampling& s) { s.repeat_penalty = 0; }).find("repeat_penalty"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::engine
