// Zeros that a kernel left, and zeros that a model computes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "forensics/test_support.h"

namespace lockstep::forensics {
namespace {

class Zeros : public testing::Test {
 protected:
  // Gaussian rows; in those from `first` on the columns of `range` are zero.
  void add(MemorySource& source, const std::string& name, int64_t rows, int64_t width,
           Range range = {}, int64_t first = 0) {
    for (int64_t position = 0; position < rows; ++position) {
      std::vector<double> values = gaussian(random_, width);
      if (position >= first)
        std::fill(values.begin() + range.begin, values.begin() + range.end, 0.0);
      source.add(name, position, make_row(DType::kF32, values));
    }
  }

  // The only finding that is garbage.
  Cluster only_garbage(const MemorySource& source) {
    report_ = scan(source);
    const auto clusters = garbage_of(report_);
    EXPECT_EQ(clusters.size(), 1u) << "seed " << seed_ << "\n" << describe(report_);
    return clusters.empty() ? Cluster{} : clusters[0];
  }

  void expect_facts(const MemorySource& source, const std::string& evidence) {
    report_ = scan(source);
    EXPECT_TRUE(report_.clean()) << describe(report_);
    ASSERT_EQ(report_.clusters.size(), 1u) << describe(report_);
    EXPECT_EQ(report_.clusters[0].kind, Kind::kHonestZeros);
    EXPECT_NE(report_.clusters[0].evidence.find(evidence), std::string::npos) << describe(report_);
  }

  uint64_t seed_ = std::random_device{}();
  Random random_{seed_};
  Report report_;
};

TEST_F(Zeros, LastColumnsInAllRows) {
  MemorySource source;
  add(source, "blk.3.q", 30, 896, {512, 896});
  const Cluster cluster = only_garbage(source);
  EXPECT_EQ(cluster.kind, Kind::kZeros);
  EXPECT_EQ(cluster.evidence,
            "columns 512 to 895 are zero in all 30 rows of blk.3.q, as if only the first 512 were "
            "written");
  EXPECT_EQ(cluster.values, (std::vector<Range>{{512, 896}}));
  EXPECT_EQ(cluster.numbers, 30 * 384);
  EXPECT_EQ(report_.garbage_numbers, 30 * 384);
}

TEST_F(Zeros, AnyColumnsInSomeRows) {
  for (int round = 0; round < 200; ++round) {
    const int64_t width = 64 + random_.below(1000), rows = 1 + random_.below(12);
    const int64_t length = std::min(8 + random_.below(width / 2), width - 8);
    const int64_t begin = random_.below(width - length + 1), first = random_.below(rows);
    SCOPED_TRACE(fmt::format("seed {}: {} of {} from {} on, rows {} to {}", seed_, length, width,
                             begin, first, rows));
    MemorySource source;
    add(source, "blk.0.v", rows, width, {begin, begin + length}, first);
    const Cluster cluster = only_garbage(source);
    EXPECT_EQ(cluster.kind, Kind::kZeros);
    EXPECT_EQ(cluster.values, (std::vector<Range>{{begin, begin + length}}));
    EXPECT_EQ(static_cast<int64_t>(cluster.positions.size()), rows - first);
    EXPECT_EQ(cluster.numbers, (rows - first) * length);
  }
}

TEST_F(Zeros, WholeRows) {
  MemorySource source;
  add(source, "blk.1.ffn_out", 12, 300, {0, 300}, 9);
  const Cluster cluster = only_garbage(source);
  EXPECT_EQ(cluster.kind, Kind::kZeros);
  EXPECT_TRUE(cluster.whole_rows);
  EXPECT_EQ(cluster.positions, (std::vector<int64_t>{9, 10, 11}));
  EXPECT_EQ(cluster.evidence,
            "all 300 numbers are zero in 3 of 12 rows of blk.1.ffn_out, and the others are not: "
            "they were not computed or not written");
}

TEST_F(Zeros, AllRows) {
  MemorySource source;
  add(source, "blk.1.ffn_out", 12, 300, {0, 300});
  EXPECT_NE(only_garbage(source).evidence.find("all 12 rows of blk.1.ffn_out are zero"),
            std::string::npos);
}

// A log keeps a few numbers of each row.
TEST_F(Zeros, ShortRowsOfALog) {
  for (const int64_t width : {6, 10, 16}) {
    MemorySource source;
    add(source, "blk.2.output", 16, width, {0, width}, 12);
    EXPECT_EQ(only_garbage(source).positions, (std::vector<int64_t>{12, 13, 14, 15}));
    MemorySource part;
    add(part, "blk.2.output", 16, 10, {4, 10});
    EXPECT_EQ(only_garbage(part).values, (std::vector<Range>{{4, 10}}));
  }
}

// The last dimensions of every head.
TEST_F(Zeros, PartOfEveryHead) {
  MemorySource source;
  for (int64_t position = 0; position < 4; ++position) {
    std::vector<double> values = gaussian(random_, 4 * 64);
    for (size_t i = 0; i < values.size(); ++i)
      if (i % 64 >= 48) values[i] = 0;
    source.add("blk.0.q", position, make_row(DType::kF32, values));
  }
  const Cluster cluster = only_garbage(source);
  EXPECT_EQ(cluster.values, (std::vector<Range>{{48, 64}, {112, 128}, {176, 192}, {240, 256}}));
  EXPECT_EQ(cluster.evidence,
            "columns 48 to 63 and 3 more ranges are zero in all 4 rows of blk.0.q");
}

// What is computed from zeros is zero; the cause is told, and that the rest follows.
TEST_F(Zeros, WhatFollowsFromZerosIsNoSecondFinding) {
  MemorySource source;
  add(source, "blk.1.attn_norm", 8, 64, {0, 64}, 5);
  for (const char* name : {"blk.1.q", "blk.1.k", "blk.1.v"}) add(source, name, 8, 32, {0, 32}, 5);
  add(source, "blk.1.ffn_gate", 8, 128, {96, 128});
  add(source, "blk.1.ffn_up", 8, 128);
  add(source, "blk.1.ffn_act", 8, 128, {96, 128});
  const Report report = scan(source);
  const auto clusters = garbage_of(report);
  ASSERT_EQ(clusters.size(), 2u) << describe(report);
  EXPECT_EQ(clusters[0].checkpoints, std::vector<std::string>{"blk.1.attn_norm"});
  EXPECT_EQ(clusters[1].checkpoints, std::vector<std::string>{"blk.1.ffn_gate"});
  ASSERT_EQ(report.clusters.size(), 3u) << describe(report);
  EXPECT_TRUE(report.clusters[2].inherited);
  EXPECT_EQ(report.clusters[2].checkpoints,
            (std::vector<std::string>{"blk.1.q", "blk.1.k", "blk.1.v", "blk.1.ffn_act"}));
}

TEST_F(Zeros, AHeadWithoutProbabilities) {
  MemorySource source;
  for (int64_t position = 0; position < 6; ++position) {
    std::vector<double> values(3 * 6);
    for (int64_t head = 0; head < 3; ++head)
      if (head != 1 || position < 4) values[static_cast<size_t>(head * 6 + position)] = 1;
    Row row = make_row(DType::kF32, values);
    row.lines = 3;
    source.add("blk.0.attn_probs", position, row);
  }
  const Cluster cluster = only_garbage(source);
  EXPECT_EQ(cluster.positions, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(
      cluster.evidence,
      "all probabilities of head 1 are zero in 2 of 6 rows of blk.0.attn_probs; they must add "
      "up to 1");
}

TEST_F(Zeros, EmbeddingsOfUnusedTokensMayBeZero) {
  MemorySource source;
  source.tokens = {5, 9, 5, 3, 8};
  for (int64_t position = 0; position < 5; ++position)
    source.add("embedding", position,
               position % 2 == 0 && position < 4 ? make_row(DType::kF32, std::vector<double>(64))
                                                 : gaussian_row(random_, DType::kF32, 64));
  expect_facts(source, "tokens that were never trained have such rows");
  // The same token cannot be both.
  source.tokens[4] = 5;
  EXPECT_NE(only_garbage(source).evidence.find("the same token, 5, has numbers at position 4"),
            std::string::npos);
  MemorySource most;
  most.tokens = {1, 2, 3, 4, 5};
  add(most, "embedding", 5, 64, {0, 64}, 1);
  EXPECT_NE(only_garbage(most).evidence.find("4 different tokens"), std::string::npos);
}

TEST_F(Zeros, APaddedVocabulary) {
  MemorySource source;
  add(source, "logits", 6, 50304, {50257, 50304});
  expect_facts(source, "a vocabulary padded to 50304");
  MemorySource half;
  add(half, "logits", 6, 50304, {25152, 50304});
  EXPECT_EQ(only_garbage(half).kind, Kind::kZeros);
}

TEST_F(Zeros, NamesThatSayNothing) {
  MemorySource source;
  add(source, "router_mask", 6, 64, {0, 64}, 3);
  expect_facts(source, "whether they should be");
  MemorySource all;
  add(all, "something", 6, 64, {0, 64});
  expect_facts(all, "whether they should be");
}

// Scattered zeros, dead channels, rows with next to nothing: what rectifiers leave.
TEST_F(Zeros, OfRectifiersAreInOrder) {
  for (const double sparsity : {0.1, 0.5, 0.9, 0.99}) {
    MemorySource source;
    std::vector<bool> dead(2000);
    for (size_t i = 0; i < dead.size(); ++i) dead[i] = random_.uniform() < sparsity / 4;
    for (int64_t position = 0; position < 20; ++position) {
      const double here = std::min(sparsity * (0.7 + 0.6 * random_.uniform()), 0.9995);
      std::vector<double> values(2000);
      for (size_t i = 0; i < values.size(); ++i)
        if (!dead[i] && random_.uniform() >= here) values[i] = std::abs(random_.gaussian());
      source.add("blk.0.ffn_act", position, make_row(DType::kF32, values));
    }
    const Report report = scan(source);
    EXPECT_TRUE(report.clean()) << "seed " << seed_ << "\n" << describe(report);
  }
}

TEST_F(Zeros, AFewDeadChannelsAreInOrder) {
  MemorySource source;
  for (int64_t position = 0; position < 20; ++position) {
    std::vector<double> values = gaussian(random_, 500);
    for (const size_t dead : {3u, 77u, 78u, 200u, 201u, 202u, 499u}) values[dead] = 0;
    source.add("blk.0.attn_norm", position, make_row(DType::kF32, values));
  }
  const Report report = scan(source);
  EXPECT_TRUE(report.clusters.empty()) << describe(report);
}

// Masks of any spelling, told once for all layers.
TEST_F(Zeros, MasksAreToldOnce) {
  for (const double mask :
       {-std::numeric_limits<double>::infinity(), -3.4028234663852886e38, -1e9, -65504.0, -1e4}) {
    MemorySource source;
    for (int layer = 0; layer < 5; ++layer)
      for (int64_t position = 0; position < 9; ++position) {
        std::vector<double> scores = gaussian(random_, 9, 5);
        std::fill(scores.begin() + position + 1, scores.end(), mask);
        source.add(fmt::format("blk.{}.attn_scores", layer), position,
                   make_row(DType::kF32, scores));
      }
    const Report report = scan(source);
    EXPECT_TRUE(report.clean()) << mask << "\n" << describe(report);
    ASSERT_EQ(report.clusters.size(), 1u) << mask << "\n" << describe(report);
    EXPECT_EQ(report.clusters[0].kind, Kind::kMasked);
    EXPECT_EQ(report.clusters[0].checkpoints.size(), 5u);
    EXPECT_EQ(report.clusters[0].numbers, 5 * 36);
  }
}

}  // namespace
}  // namespace lockstep::forensics
