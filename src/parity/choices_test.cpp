// Which choices a declared sampling can have made.
#include "parity/choices.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/sampler.h"

namespace lockstep::parity {
namespace {

using nlohmann::ordered_json;

TEST(Sampling, IsReadAsEnginesWriteIt) {
  EXPECT_FALSE(declared_sampling(ordered_json::object()).known);
  EXPECT_FALSE(declared_sampling(ordered_json::array()).known);
  EXPECT_FALSE(declared_sampling({{"seed", 4}}).known) << "nothing is said of how";
  EXPECT_TRUE(declared_sampling({{"temperature", 0}}).known);
  EXPECT_FALSE(declared_sampling({{"temperature", 0}}).random());
  EXPECT_TRUE(declared_sampling({{"temp", 0.7}, {"seed", 4}, {"max_tokens", 100}}).random());
  EXPECT_FALSE(declared_sampling({{"do_sample", false}, {"temperature", 1.0}}).random());
  EXPECT_TRUE(declared_sampling({{"do_sample", true}, {"temperature", 1.0}}).random());
  // What nobody knows may change the choice, unless it is switched off.
  EXPECT_FALSE(declared_sampling({{"temperature", 0}, {"frequency_penalty", 0.5}}).known);
  EXPECT_TRUE(declared_sampling({{"temperature", 0}, {"frequency_penalty", 0}}).known);
  EXPECT_FALSE(declared_sampling({{"temperature", 0}, {"logit_bias", {{"7", 3}}}}).known);
  EXPECT_TRUE(
      declared_sampling({{"temperature", 0}, {"logit_bias", ordered_json::object()}}).known);
  for (const ordered_json& bad :
       {ordered_json("hot"), ordered_json(-1), ordered_json(nullptr), ordered_json({1})})
    EXPECT_FALSE(declared_sampling({{"temperature", bad}}).known) << bad;
  for (const double huge : {1e300, -1e18, std::numeric_limits<double>::infinity()})
    EXPECT_FALSE(declared_sampling({{"temperature", 1}, {"top_k", huge}}).known);
  EXPECT_EQ(describe(declared_sampling({{"temperature", 0.5}, {"top_k", 40}, {"top_p", 0.9}})),
            "temperature 0.5, top_k 40, top_p 0.9");
}

Choice take(const std::vector<double>& logits, int32_t token, const ordered_json& sampling,
            const std::vector<int32_t>& history = {}, double unit = 0) {
  return judge_choice(logits, token, history, declared_sampling(sampling), unit);
}

TEST(Sampling, TheLargestIsTakenAtTemperatureZero) {
  const std::vector<double> logits = {1, 3, 3, -2, std::nan(""), 2.9999};
  const ordered_json greedy = {{"temperature", 0}};
  EXPECT_TRUE(take(logits, 1, greedy).possible);
  EXPECT_TRUE(take(logits, 2, greedy).possible) << "of equal ones any";
  EXPECT_TRUE(take(logits, 2, greedy).tie);
  EXPECT_EQ(take(logits, 2, greedy).largest, 1);
  EXPECT_FALSE(take(logits, 5, greedy).possible);
  EXPECT_TRUE(take(logits, 5, greedy, {}, 0x1p-8).possible) << "rounded after the choice";
  EXPECT_FALSE(take(logits, 0, greedy, {}, 0x1p-8).possible);
  EXPECT_TRUE(take(logits, 4, greedy).possible) << "a NaN is judged where the logits are";
  EXPECT_TRUE(take(logits, 0, ordered_json::object()).possible) << "nothing was said";
  EXPECT_FALSE(take(logits, 0, ordered_json::object()).is_largest);
}

TEST(Sampling, WhatIsCutOffCannotBeDrawn) {
  const std::vector<double> logits = {5, 4, 3, 2, 1, -std::numeric_limits<double>::infinity()};
  EXPECT_TRUE(take(logits, 4, {{"temperature", 1}}).possible);
  EXPECT_FALSE(take(logits, 5, {{"temperature", 1}}).possible);
  EXPECT_TRUE(take(logits, 2, {{"temperature", 1}, {"top_k", 3}}).possible);
  EXPECT_FALSE(take(logits, 3, {{"temperature", 1}, {"top_k", 3}}).possible);
  // 5 has 0.64 of the probability, 4 has 0.23.
  EXPECT_TRUE(take(logits, 1, {{"temperature", 1}, {"top_p", 0.7}}).possible);
  EXPECT_FALSE(take(logits, 1, {{"temperature", 1}, {"top_p", 0.6}}).possible);
  EXPECT_TRUE(take(logits, 1, {{"temperature", 9}, {"top_p", 0.6}}).possible);
  EXPECT_TRUE(take(logits, 1, {{"temperature", 0.1}, {"top_p", 0.7}}).possible)
      << "some cut before the temperature";
  EXPECT_TRUE(take(logits, 2, {{"temperature", 1}, {"min_p", 0.1}}).possible);
  EXPECT_FALSE(take(logits, 3, {{"temperature", 1}, {"min_p", 0.1}}).possible);
}

TEST(Sampling, APenaltyMayOrMayNotHaveHitATokenThatOccurred) {
  const std::vector<double> logits = {5, 4.5, 4, -1};
  const ordered_json penalty = {{"temperature", 0}, {"repeat_penalty", 2}};
  EXPECT_TRUE(take(logits, 1, penalty, {0}).possible) << "5 / 2 is less than 4.5";
  EXPECT_FALSE(take(logits, 1, penalty, {2}).possible);
  EXPECT_TRUE(take(logits, 0, penalty, {0}).possible) << "it may be out of the window";
  EXPECT_FALSE(take(logits, 2, penalty, {0}).possible);
  EXPECT_FALSE(take(logits, 3, penalty, {0, 1, 2}).possible);
}

// Our own sampler makes only choices that can have been made, with every mix of settings.
TEST(Sampling, WhatASamplerChoosesIsPossible) {
  Random random(11);
  int64_t drawn = 0;
  for (int round = 0; round < 300; ++round) {
    engine::Sampling s;
    s.temperature = round % 4 == 0 ? 0 : 0.2 + 2 * random.uniform();
    s.top_k = round % 3 == 0 ? 1 + static_cast<int64_t>(random.next() % 20) : 0;
    s.top_p = round % 5 == 0 ? 0.05 + 0.9 * random.uniform() : 1;
    s.min_p = round % 7 == 0 ? random.uniform() : 0;
    s.repeat_penalty = round % 2 == 0 ? 1 : 0.5 + random.uniform();
    s.repeat_window = static_cast<int64_t>(random.next() % 8);
    s.seed = random.next();
    const ordered_json declared = {{"temperature", s.temperature},
                                   {"top_k", s.top_k},
                                   {"top_p", s.top_p},
                                   {"min_p", s.min_p},
                                   {"repeat_penalty", s.repeat_penalty},
                                   {"repeat_window", s.repeat_window},
                                   {"seed", s.seed}};
    engine::Sampler sampler(s);
    std::vector<int32_t> history = {1, 2, 3, 4, 5};
    for (int step = 0; step < 20; ++step) {
      std::vector<float> row(1 + random.next() % 60);
      for (float& logit : row) logit = static_cast<float>(4 * random.gaussian());
      if (step % 5 == 0) row.back() = -std::numeric_limits<float>::infinity();
      std::erase_if(history, [&](int32_t id) { return id >= static_cast<int32_t>(row.size()); });
      const View view{DType::kF32, row.data(), {1, static_cast<int64_t>(row.size())}};
      const auto token = sampler.choose(view, 0, history);
      ASSERT_TRUE(token.ok());
      if (std::isinf(row[static_cast<size_t>(*token)])) continue;  // there was nothing else
      const Choice choice = take({row.begin(), row.end()}, *token, declared, history);
      EXPECT_TRUE(choice.possible) << declared << " token " << *token << " of " << row.size();
      history.push_back(*token);
      ++drawn;
    }
  }
  EXPECT_GT(drawn, 5000);
}

}  // namespace
}  // namespace lockstep::parity
