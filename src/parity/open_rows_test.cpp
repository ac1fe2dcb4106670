#include "parity/open_rows.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/random.h"
#include "parity/test_judging.h"

namespace lockstep::parity {
namespace {

TEST(OpenRow, KeepsWhatStandsOut) {
  Random random(20261);
  for (const int64_t width : {1, 2, 7, 255, 257, 1024, 1025, 5001}) {
    const auto count = static_cast<size_t>(width);
    std::vector<double> expected(count), recorded(count), variance(count, 1e-12);
    for (size_t i = 0; i < count; ++i) {
      expected[i] = static_cast<float>(random.uniform() - 0.5);
      recorded[i] = expected[i] + (i % 3 == 0 ? 0x1p-22 : 0);
    }
    const auto wrong = static_cast<size_t>(random.uniform() * static_cast<double>(count));
    recorded[wrong] = expected[wrong] + 0.5;
    const OpenedRow row = open_row(recorded, expected, variance, false);
    EXPECT_EQ(row.elements, width);
    EXPECT_GT(row.ratio, 1);
    EXPECT_EQ(std::accumulate(row.histogram.begin(), row.histogram.end(), int64_t{0}), width);
    ASSERT_FALSE(row.worst.empty());
    EXPECT_LE(row.worst.size(), 10u);
    EXPECT_EQ(row.worst[0].index, static_cast<int64_t>(wrong));
    EXPECT_EQ(row.worst[0].recorded, recorded[wrong]);
    EXPECT_EQ(row.worst[0].expected, expected[wrong]);
    int64_t equal = 0;
    for (size_t i = 0; i < count; ++i) equal += recorded[i] == expected[i] ? 1 : 0;
    EXPECT_EQ(row.histogram[0], equal);
    EXPECT_LE(row.index.size(), 1024u);
    EXPECT_EQ(row.index.size() == count, count <= 1024);
    EXPECT_TRUE(std::ranges::is_sorted(row.index, std::less_equal<>()));
    EXPECT_TRUE(std::ranges::binary_search(row.index, static_cast<int32_t>(wrong)));
    ASSERT_EQ(row.recorded.size(), row.index.size());
    ASSERT_EQ(row.errors.size(), row.index.size());
    for (size_t i = 0; i < row.index.size(); ++i) {
      const auto at = static_cast<size_t>(row.index[i]);
      EXPECT_EQ(row.recorded[i], static_cast<float>(recorded[at]));
      EXPECT_EQ(row.errors[i], static_cast<float>(recorded[at] - expected[at]));
    }
  }
}

TEST(OpenRow, NumbersThatAreNone) {
  const std::vector<double> expected = {1, 2, -INFINITY, NAN, -INFINITY, NAN};
  const std::vector<double> recorded = {1, NAN, -INFINITY, NAN, -1e4, 7};
  const std::vector<double> variance(6, 1e-9);
  const OpenedRow row = open_row(recorded, expected, variance, true);
  EXPECT_EQ(row.ratio, INFINITY);
  ASSERT_EQ(row.worst.size(), 1u);
  EXPECT_EQ(row.worst[0].index, 1);
  EXPECT_EQ(row.histogram.front(), 5);
  EXPECT_EQ(row.histogram.back(), 1);
  EXPECT_EQ(open_row({}, {}, {}, false).elements, 0);
}

TEST(Rows, SizesOfDifferencesAndErrors) {
  Metrics m;
  m.add(3, 3.5, 0);
  m.add(4, 4, 1);
  const RowDifference row = row_difference(7, m);
  EXPECT_EQ(row.position, 7);
  EXPECT_FLOAT_EQ(row.relative_l2, 0.1F);
  EXPECT_FLOAT_EQ(row.difference, static_cast<float>(0.5 / std::sqrt(2)));
  m.add(1, NAN, 2);
  EXPECT_EQ(row_difference(7, m).relative_l2, INFINITY);
  EXPECT_EQ(row_difference(0, Metrics()).difference, 0);
  OwnError own{.position = 3, .error = 8, .expected = 1};
  EXPECT_EQ(row_error(own).ratio, 2);
  EXPECT_EQ(row_error(own).error, 8);
  own.non_finite = true;
  EXPECT_EQ(row_error(own).ratio, INFINITY);
}

class RowsTest : public JudgingTest {
 protected:
  RowsTest() {
    options.rows = true;
    options.opened_bytes = 10'000'000;
  }
};

TEST_F(RowsTest, HaveTheNumbersOfTheirCheckpoint) {
  Recording wrong = original;
  wrong.at("blk.1.ffn_act", 4, 3) += 0.5;
  const Comparison c = judge(original, wrong);
  for (const CheckpointResult& result : c.checkpoints) {
    EXPECT_EQ(std::ssize(result.rows.compared), result.positions) << result.name;
    EXPECT_GT(result.rows.allowed, 0);
    for (const auto* side : {&result.reference, &result.suspect}) {
      ASSERT_EQ(std::ssize(side->rows), side->judged) << result.name;
      for (const RowError& row : side->rows)
        EXPECT_EQ(row.ratio > 1, std::ranges::count(side->defects, row.position) == 1);
      ASSERT_TRUE(side->worst) << result.name;
      EXPECT_EQ(std::ranges::max(side->rows, {}, &RowError::ratio).ratio,
                row_error(*side->worst).ratio);
    }
  }
  EXPECT_EQ(c.logits.size(), kTokens.size());
  EXPECT_EQ(c.reference_tokens.ids, kTokens);
  EXPECT_EQ(c.suspect_tokens.prompt, kPrompt);
  EXPECT_TRUE(c.suspect_tokens.texts.empty());
  ASSERT_FALSE(c.opened.empty());
  const OpenedRow& first = c.opened.front();
  EXPECT_EQ(first.checkpoint, "blk.1.ffn_act");
  EXPECT_EQ(first.position, 4);
  EXPECT_EQ(first.side, Side::kSuspect);
  EXPECT_EQ(first.worst.at(0).index, 3);
  EXPECT_EQ(first.worst.at(0).recorded, wrong.at("blk.1.ffn_act", 4, 3));
  ASSERT_EQ(first.inputs.size(), 2u);
  EXPECT_EQ(first.inputs[0].name, "blk.1.ffn_gate");
  EXPECT_TRUE(first.inputs[0].recorded);
  EXPECT_EQ(first.worst.at(0).inputs.at(1), wrong.at("blk.1.ffn_up", 4, 3));
  // Every row that is wrong, and the worst of every checkpoint and side.
  EXPECT_EQ(c.not_opened, 0);
  EXPECT_GE(c.opened.size(), 2 * c.checkpoints.size());
  for (const OpenedRow& row : c.opened) {
    const bool scores = row.checkpoint.ends_with("scores") || row.checkpoint.ends_with("probs");
    EXPECT_EQ(row.keys > row.position, scores) << row.checkpoint;
    EXPECT_EQ(row.keys * std::ssize(row.heads), scores ? row.elements : 0);
    EXPECT_EQ(row.heads.empty(),
              find(c, row.checkpoint).layer < 0 ||
                  row.checkpoint.find("ffn") != std::string::npos ||
                  row.checkpoint.ends_with("attn_norm") || row.checkpoint.ends_with("output") ||
                  row.checkpoint.ends_with("attn_out") || row.checkpoint.ends_with("attn_residual"))
        << row.checkpoint;
  }
}

TEST_F(RowsTest, AreLeftOutWhereTheyAreNotAskedFor) {
  options.rows = false;
  const Comparison c = judge(original, original);
  EXPECT_TRUE(c.opened.empty());
  EXPECT_TRUE(c.logits.empty());
  for (const CheckpointResult& result : c.checkpoints) {
    EXPECT_TRUE(result.rows.compared.empty());
    EXPECT_TRUE(result.suspect.rows.empty());
  }
}

TEST_F(RowsTest, OnlySoManyAreOpened) {
  Recording wrong = original;
  for (int64_t position = 0; position < std::ssize(kTokens); ++position)
    wrong.at("blk.0.q", position, 1) += 0.25;
  options.opened_bytes = 20'000;
  const Comparison c = judge(original, wrong);
  EXPECT_GT(c.not_opened, 0);
  ASSERT_FALSE(c.opened.empty());
  EXPECT_LE(c.opened.size(), 5u);
  EXPECT_EQ(c.opened.front().checkpoint, "blk.0.q");
  EXPECT_EQ(c.opened.front().position, 0);
}

TEST_F(RowsTest, HeadsTellWhichOneIsWrong) {
  Recording wrong = original;
  const int64_t width = wrong.values.at("blk.1.q").shape[1];
  wrong.at("blk.1.q", 5, width - 1) = NAN;
  wrong.at("blk.0.q", 2, 0) += 0.5;
  const Comparison c = judge(original, wrong);
  for (const auto& place : {std::pair("blk.0.q", 2), std::pair("blk.1.q", 5)}) {
    const char* const name = place.first;
    const int position = place.second;
    const auto row = std::ranges::find_if(c.opened, [&](const OpenedRow& opened) {
      return opened.checkpoint == name && opened.position == position &&
             opened.side == Side::kSuspect;
    });
    ASSERT_NE(row, c.opened.end()) << name;
    ASSERT_GT(row->heads.size(), 1u);
    const bool first = name == std::string("blk.0.q");
    for (const OpenedRow::Head& head : row->heads)
      EXPECT_EQ(head.error > 0, &head == (first ? &row->heads.front() : &row->heads.back()));
    EXPECT_EQ(std::isinf(row->heads.back().error), !first);
  }
}

TEST_F(RowsTest, WhatAnEngineMasksWithIsNoError) {
  Recording masked = original;
  for (double& score : masked.values.at("blk.0.attn_scores").numbers)
    if (std::isinf(score)) score = -1e9;
  const Comparison c = judge(original, masked);
  for (const OpenedRow& row : c.opened) {
    EXPECT_LE(row.ratio, 1) << row.checkpoint;
    for (const OpenedRow::Element& element : row.worst) EXPECT_LE(element.ratio, 1);
    for (const OpenedRow::Head& head : row.heads) EXPECT_TRUE(std::isfinite(head.error));
  }
}

TEST_F(RowsTest, GapsAreTold) {
  Recording gaps = original;
  gaps.remove("blk.0.ffn_gate");
  const Comparison c = judge(original, gaps);
  const CheckpointResult& gone = find(c, "blk.0.ffn_gate");
  EXPECT_EQ(gone.rows.only_reference.size(), kTokens.size());
  EXPECT_TRUE(gone.rows.only_suspect.empty());
  EXPECT_TRUE(gone.suspect.rows.empty());
  const auto row = std::ranges::find_if(c.opened, [](const OpenedRow& opened) {
    return opened.checkpoint == "blk.0.ffn_act" && opened.side == Side::kSuspect;
  });
  ASSERT_NE(row, c.opened.end());
  EXPECT_FALSE(row->inputs.at(0).recorded);
  EXPECT_TRUE(row->inputs.at(1).recorded);
}

TEST_F(RowsTest, WithoutAModelTheSidesAreShownBesideEachOther) {
  Recording wrong = original;
  wrong.at("blk.1.output", 2, 0) += 3;
  const Comparison c = judge(original, wrong, false);
  ASSERT_FALSE(c.opened.empty());
  const OpenedRow& first = c.opened.front();
  EXPECT_EQ(first.checkpoint, "blk.1.output");
  EXPECT_EQ(first.position, 2);
  EXPECT_EQ(first.side, Side::kUndetermined);
  EXPECT_EQ(first.worst.at(0).index, 0);
  EXPECT_EQ(first.worst.at(0).expected, original.at("blk.1.output", 2, 0));
  EXPECT_GT(first.ratio, 1);
}

}  // namespace
}  // namespace lockstep::parity
