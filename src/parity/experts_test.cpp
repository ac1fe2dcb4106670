// Judging the routing of a mixture of experts.
#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "parity/compare.h"
#include "parity/noise_experts.h"
#include "parity/part.h"
#include "parity/test_traces.h"

namespace lockstep::parity {
namespace {

constexpr int64_t kRoutedTokens = 19, kUsedExperts = 3, kExpertCount = 7;

// Whether a note says this.
bool notes_say(const Comparison& c, std::string_view text) {
  return std::ranges::any_of(
      c.notes, [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

class ExpertsTest : public ::testing::Test {
 protected:
  ExpertsTest() {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < kRoutedTokens; ++i)
      tokens.push_back(static_cast<int32_t>(random_() % 256));
    right_ = traced_.record(tokens, kRoutedTokens);
  }

  Comparison compared(const Recording& suspect) const {
    const trace::Trace a = traced_.write(right_), b = traced_.write(suspect);
    return compare(a, b, &traced_.model(), {}).value();
  }

  // Slots of all values of experts at one position, in another order.
  static void swap_slots(Recording& recording, int64_t layer, int64_t position, int64_t a,
                         int64_t b) {
    for (const char* leaf : {"ffn_choice", "ffn_weights", "ffn_expert_gate", "ffn_expert_up",
                             "ffn_expert_act", "ffn_expert_out"}) {
      const std::string name = fmt::format("blk.{}.{}", layer, leaf);
      const int64_t width = recording.values.at(name).shape[1] / kUsedExperts;
      for (int64_t i = 0; i < width; ++i)
        std::swap(recording.at(name, position, a * width + i),
                  recording.at(name, position, b * width + i));
    }
  }

  // The expert with the smallest number of the router.
  double worst_expert(int64_t layer, int64_t position) {
    double* row = &right_.at(fmt::format("blk.{}.ffn_router", layer), position, 0);
    return static_cast<double>(std::min_element(row, row + kExpertCount) - row);
  }

  std::mt19937 random_{std::random_device{}()};
  const TracedModel traced_{forge::Spec{.arch = "qwen3moe",
                                        .feed_forward = 33,
                                        .experts = kExpertCount,
                                        .experts_used = kUsedExperts,
                                        .expert_feed_forward = 21,
                                        .type = "f32",
                                        .seed = random_()}};
  Recording right_;
};

TEST_F(ExpertsTest, TheirOrderSaysNothing) {
  Recording other = right_;
  for (int64_t layer = 0; layer < 2; ++layer)
    for (int64_t position = 0; position < kRoutedTokens; ++position)
      swap_slots(other, layer, position, position % kUsedExperts,
                 (position + layer) % kUsedExperts);
  const Comparison c = compared(other);
  EXPECT_TRUE(c.parity);
  EXPECT_EQ(c.verdict, "exact");
  EXPECT_FALSE(notes_say(c, "experts"));
}

TEST_F(ExpertsTest, AChoiceThatTheRouterDoesNotLeadToIsADefect) {
  Recording wrong = right_;
  const double worst = worst_expert(1, 5);
  const double best = right_.at("blk.1.ffn_choice", 5, 0);
  wrong.at("blk.1.ffn_choice", 5, 0) = worst;
  const Comparison c = compared(wrong);
  ASSERT_TRUE(c.first_defect);
  EXPECT_EQ(c.first_defect->checkpoint, "blk.1.ffn_choice");
  EXPECT_EQ(c.first_defect->position, 5);
  EXPECT_EQ(c.first_defect->side, Side::kSuspect);
  EXPECT_EQ(c.first_defect->own.worst_index, 0);
  EXPECT_EQ(c.first_defect->own.recorded, worst);
  EXPECT_EQ(c.first_defect->own.replayed, best);
  EXPECT_GT(c.first_defect->own.ratio(), 1);
  ASSERT_TRUE(c.first_defect->shape);
  EXPECT_EQ(c.first_defect->shape->columns, std::vector<int64_t>{0});
  EXPECT_TRUE(notes_say(c, fmt::format("the sides took other experts in 1 of {} rows, first "
                                       "blk.1.ffn_choice at position 5, where the reference took",
                                       2 * kRoutedTokens)));
}

TEST_F(ExpertsTest, WhatIsNoExpertIsADefect) {
  for (const double number :
       {double{kExpertCount}, -1.0, 0.5, std::numeric_limits<double>::quiet_NaN()}) {
    Recording wrong = right_;
    wrong.at("blk.0.ffn_choice", 3, 1) = number;
    const Comparison c = compared(wrong);
    ASSERT_TRUE(c.first_defect) << number;
    EXPECT_EQ(c.first_defect->checkpoint, "blk.0.ffn_choice") << number;
    EXPECT_EQ(c.first_defect->own.worst_index, 1);
    EXPECT_EQ(c.first_defect->own.replayed, -1);
  }
  Recording twice = right_;
  twice.at("blk.0.ffn_choice", 3, 2) = twice.at("blk.0.ffn_choice", 3, 0);
  const Comparison c = compared(twice);
  ASSERT_TRUE(c.first_defect);
  EXPECT_EQ(c.first_defect->own.worst_index, 2);
}

// An engine is judged by the experts that it took, right or wrong.
TEST_F(ExpertsTest, WhatFollowsIsJudgedByTheRecordedChoice) {
  Recording wrong = right_;
  wrong.at("blk.1.ffn_expert_gate", 5, 2) += 1;
  const Comparison c = compared(wrong);
  ASSERT_TRUE(c.first_defect);
  EXPECT_EQ(c.first_defect->checkpoint, "blk.1.ffn_expert_gate");
  EXPECT_EQ(c.first_defect->position, 5);
}

TEST_F(ExpertsTest, AChoiceThatWasNotRecordedIsDerived) {
  Recording few = right_;
  for (int64_t layer = 0; layer < 2; ++layer)
    for (const char* leaf : {"ffn_choice", "ffn_weights", "ffn_expert_gate", "ffn_expert_up",
                             "ffn_expert_act", "ffn_expert_out"})
      few.remove(fmt::format("blk.{}.{}", layer, leaf));
  const Comparison c = compared(few);
  EXPECT_FALSE(c.first_defect);
  EXPECT_EQ(c.suspect.experts.rows(), 2 * kRoutedTokens);
  EXPECT_EQ(c.suspect.experts.open(), 0);
  EXPECT_EQ(c.reference.experts.rows(), 0);
  EXPECT_TRUE(
      notes_say(c, fmt::format("the suspect did not record which experts its tokens took: {} "
                               "choices were derived; recording ffn_choice makes them certain",
                               2 * kRoutedTokens)));
  few.at("blk.0.ffn_out", 7, 3) += 0.5;
  const Comparison wrong = compared(few);
  ASSERT_TRUE(wrong.first_defect);
  EXPECT_EQ(wrong.first_defect->checkpoint, "blk.0.ffn_out");
  EXPECT_EQ(wrong.first_defect->position, 7);
}

// Rows of experts without the experts' numbers: in which order is anybody's guess.
TEST_F(ExpertsTest, AnOrderThatNobodyKnowsIsNoMistake) {
  Recording other = right_;
  for (int64_t position = 0; position < kRoutedTokens; ++position)
    swap_slots(other, 1, position, 0, 2);
  other.remove("blk.1.ffn_choice");
  const Comparison c = compared(other);
  EXPECT_FALSE(c.first_defect);
  EXPECT_EQ(c.suspect.experts.open(), kRoutedTokens);
  EXPECT_TRUE(notes_say(c, "too close to tell or have an unknown order"));
  other.at("blk.1.ffn_out", 2, 0) += 0.5;
  ASSERT_TRUE(compared(other).first_defect);
}

// Parts derive choices by themselves, some of them the same ones.
TEST_F(ExpertsTest, PartsTellOfDerivedChoicesWhatTheWholeTells) {
  Recording few = right_;
  few.remove("blk.0.ffn_choice");
  for (const char* leaf : {"ffn_choice", "ffn_weights", "ffn_expert_gate", "ffn_expert_up",
                           "ffn_expert_act", "ffn_expert_out"})
    few.remove(fmt::format("blk.1.{}", leaf));
  const trace::Trace a = traced_.write(right_), b = traced_.write(few);
  const Comparison whole = compare(a, b, &traced_.model(), {}).value();
  EXPECT_EQ(whole.suspect.experts.rows(), 2 * kRoutedTokens);
  EXPECT_EQ(whole.suspect.experts.open(), kRoutedTokens);
  for (const int64_t count : {1, 2, 7, 40}) {
    SCOPED_TRACE(count);
    std::vector<Findings> parts;
    for (int64_t k = 1; k <= count; ++k)
      parts.push_back(
          parse_findings(to_json(compare_part(a, b, &traced_.model(), {}, {k, count}).value()), "f")
              .value());
    CompareOptions options;
    options.parts = &parts;
    const auto merged = compare(a, b, &traced_.model(), options);
    ASSERT_TRUE(merged.ok()) << merged.error().message;
    EXPECT_EQ(merged->notes, whole.notes);
    EXPECT_EQ(merged->suspect.experts.rows(), whole.suspect.experts.rows());
    EXPECT_EQ(merged->suspect.experts.open(), whole.suspect.experts.open());
    EXPECT_EQ(merged->reference.experts.rows(), 0);
    auto& of = parts[0].suspect_experts.by_checkpoint["blk.1.ffn_choice"];
    of.all = {{0, kRoutedTokens}};
    const auto refused = compare(a, b, &traced_.model(), options);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "f: blk.1.ffn_choice: has choices that the traces do not have");
  }
}

TEST(DerivedChoices, RunsOfSeveralPartsAreUnited) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 100; ++round) {
    std::set<int64_t> all;
    Runs out;
    for (int part = 0; part < 3; ++part) {
      Runs runs;
      for (int64_t at = 0; at < 40; at += 2 + static_cast<int64_t>(random() % 7)) {
        const int64_t last = at + static_cast<int64_t>(random() % 5);
        runs.emplace_back(at, last);
        for (int64_t i = at; i <= last; ++i) all.insert(i);
        at = last;
      }
      out = united(std::move(out), runs);
    }
    EXPECT_EQ(count(out), std::ssize(all));
    for (size_t i = 1; i < out.size(); ++i) EXPECT_GT(out[i].first, out[i - 1].second + 1);
    for (const auto& [first, last] : out) EXPECT_TRUE(all.contains(first) && all.contains(last));
  }
}

TEST(ExpertChoice, TiesAreWhatRoundingExplains) {
  const op::Choose choose;
  const ExpertScores of{{1, 3, 3, 2.9}, {0.01, 0.01, 0.01, 0.01}};
  const auto judged = [&](std::vector<double> choice) { return judge_experts(choose, of, choice); };
  EXPECT_EQ(judged({2}).gap, 0);
  EXPECT_EQ(judged({1}).gap, 0);
  EXPECT_EQ(judged({1, 2}).gap, 0);
  const ExpertChoice close = judged({1, 3});
  EXPECT_NEAR(close.gap, 0.1, 1e-12);
  EXPECT_NEAR(close.deviation, std::sqrt(0.02), 1e-12);
  EXPECT_EQ(close.slot, 1);
  EXPECT_EQ(close.better, 2);
  const ExpertChoice far = judged({0, 1});
  EXPECT_NEAR(far.gap, 2, 1e-12);
  EXPECT_EQ(far.slot, 0);
  EXPECT_EQ(far.better, 2);
  EXPECT_FALSE(is_certain(choose, of, std::vector<double>{1}));
  EXPECT_FALSE(is_certain(choose, of, std::vector<double>{1, 2}));
  const ExpertScores sure{{1, 3, 3, 2}, {1e-6, 1e-6, 1e-6, 1e-6}};
  EXPECT_TRUE(is_certain(choose, sure, std::vector<double>{1, 2}));
  EXPECT_TRUE(is_certain(choose, sure, std::vector<double>{2, 1, 3}));
  EXPECT_FALSE(is_certain(choose, sure, std::vector<double>{1}));
  EXPECT_TRUE(is_certain(choose, sure, std::vector<double>{0, 1, 2, 3}));
}

TEST(ExpertChoice, GroupsAreHeldAgainstEachOther) {
  op::Choose choose;
  choose.groups = 3;
  const ExpertScores of{{5, 0, 4, 4, 3, 3}, std::vector<double>(6, 1e-8)};  // sums 5, 8, 6
  const auto judged = [&](std::vector<double> choice) { return judge_experts(choose, of, choice); };
  EXPECT_EQ(judged({2, 3}).gap, 0);
  // The largest score of all is in another group.
  EXPECT_NEAR(judged({0, 1}).gap, 3, 1e-12);
  EXPECT_EQ(judged({0, 2}).better, -1);  // of two groups, where one is used
  choose.groups_used = 2;
  EXPECT_EQ(judged({2, 3, 4}).gap, 0);
  EXPECT_NEAR(judged({0, 2, 3}).gap, 1, 1e-12);
}

}  // namespace
}  // namespace lockstep::parity
