#include "engine/speed.h"

#include <cmath>

#include <gtest/gtest.h>

namespace lockstep::engine {
namespace {

constexpr int64_t kVocabulary = 13;

op::Program small_program(int64_t context) {
  op::Program program;
  program.vocabulary = kVocabulary;
  program.context_length = context;
  return program;
}

// Computes nothing, and remembers what it was asked.
class Counter : public exec::Executor {
 public:
  using Executor::Executor;
  DType dtype() const override { return DType::kF64; }
  exec::Precision precision() const override { return {"f64", "f64", "f64"}; }

  struct Call {
    int64_t position;
    size_t tokens;
    exec::TokenId first;
    bool greedy;
  };
  std::vector<Call> calls;
  bool all_logits = false;
  static size_t largest_after(exec::TokenId token) {
    return static_cast<size_t>(5 * token + 3) % kVocabulary;
  }

 protected:
  Result<View> evaluate(const exec::Step& step) override {
    calls.push_back({positions(), step.tokens.size(), step.tokens[0], step.greedy});
    all_logits |= step.all_logits;
    logits_.assign(kVocabulary, 0);
    logits_[largest_after(step.tokens[0])] = 1;
    return View{DType::kF64, logits_.data(), {1, kVocabulary}};
  }

 private:
  std::vector<double> logits_ = std::vector<double>(kVocabulary);
};

TEST(Speed, NamesAreThoseOfLlamaBench) {
  EXPECT_EQ((SpeedTest{SpeedTest::Kind::kPrompt, 128}.name()), "pp128");
  EXPECT_EQ((SpeedTest{SpeedTest::Kind::kGeneration, 32}.name()), "tg32");
}

TEST(Speed, StatisticsOfSamples) {
  const Speeds one({3.5});
  EXPECT_EQ(one.mean(), 3.5);
  EXPECT_EQ(one.deviation(), 0);
  EXPECT_EQ(one.median(), 3.5);
  const Speeds four({8, 2, 4, 6});
  EXPECT_EQ(four.mean(), 5);
  EXPECT_DOUBLE_EQ(four.deviation(), std::sqrt(20.0 / 3));
  EXPECT_EQ(four.median(), 5);
  EXPECT_EQ(Speeds({9, 1, 2}).median(), 2);
}

TEST(Speed, APromptGoesInAsSessionTakesIt) {
  const op::Program program = small_program(600);
  Counter executor(program);
  int runs = 0;
  const auto speeds =
      measure(executor, kVocabulary, {SpeedTest::Kind::kPrompt, 600}, 2, [&] { ++runs; });
  ASSERT_TRUE(speeds.ok());
  EXPECT_EQ(speeds->samples().size(), 2u);
  EXPECT_EQ(runs, 3);
  EXPECT_FALSE(executor.all_logits);
  EXPECT_EQ(executor.positions(), 0);
  int64_t next = 0;  // whatever the pieces: every run starts at 0 and ends at 600
  int whole = 0;
  for (const Counter::Call& call : executor.calls) {
    EXPECT_EQ(call.position, next);
    next += static_cast<int64_t>(call.tokens);
    if (next == 600) ++whole, next = 0;
  }
  EXPECT_EQ(whole, 3);
  EXPECT_EQ(next, 0);
}

TEST(Speed, GenerationTakesOneTokenAfterAnother) {
  const op::Program program = small_program(40);
  Counter executor(program);
  const auto speeds =
      measure(executor, kVocabulary, {SpeedTest::Kind::kGeneration, 40}, 3, nullptr);
  ASSERT_TRUE(speeds.ok());
  ASSERT_EQ(speeds->samples().size(), 3u);
  for (const double speed : speeds->samples()) {
    EXPECT_TRUE(std::isfinite(speed));
    EXPECT_GT(speed, 0);
  }
  ASSERT_EQ(executor.calls.size(), 16u + 3 * 40);
  for (size_t i = 0; i < executor.calls.size(); ++i) {
    EXPECT_EQ(executor.calls[i].tokens, 1u);
    const size_t position = i < 16 ? i : (i - 16) % 40, count = i < 16 ? 16 : 40;
    EXPECT_EQ(executor.calls[i].position, static_cast<int64_t>(position));
    // Each token is the largest logit of the one before, and the executor knows that it will be.
    EXPECT_EQ(executor.calls[i].greedy, position + 1 < count);
    if (position > 0) {
      EXPECT_EQ(static_cast<size_t>(executor.calls[i].first),
                Counter::largest_after(executor.calls[i - 1].first));
    }
  }
}

TEST(Speed, WhatDoesNotFitTheContextIsAnError) {
  const op::Program program = small_program(39);
  Counter executor(program);
  EXPECT_FALSE(measure(executor, kVocabulary, {SpeedTest::Kind::kPrompt, 40}, 1, nullptr).ok());
  EXPECT_FALSE(measure(executor, kVocabulary, {SpeedTest::Kind::kGeneration, 40}, 1, nullptr).ok());
}

}  // namespace
}  // namespace lockstep::engine
