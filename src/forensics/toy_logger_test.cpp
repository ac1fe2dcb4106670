// A log of memory that was freed before it was written, made afresh by a logger that is wrong on
// purpose (tests/toy_logger.cpp), and named by the scan.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "base/test_effort.h"
#include "forensics/test_support.h"

namespace lockstep::forensics {
namespace {

namespace fs = std::filesystem;

class ToyLogger : public testing::Test {
 protected:
  // Runs the logger and scans what it wrote.
  Report scan_log(int values, int digits, int positions) {
    const std::string log = (folder_ / "log.jsonl").string();
    const std::string command =
        fmt::format("'{}' '{}' {} {} {}", TOY_LOGGER, log, values, digits, positions);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    std::ifstream in(log);
    text_.assign(std::istreambuf_iterator<char>(in), {});
    auto source = Source::open(log);
    EXPECT_TRUE(source.ok()) << source.error().message;
    EXPECT_TRUE((*source)->problems.empty());
    return scan(**source);
  }

  // That freed memory was read, at the places where the allocator keeps its links.
  void expect_free_list(const Report& report, size_t positions) {
    const auto clusters = garbage_of(report);
    ASSERT_EQ(clusters.size(), 1u) << describe(report) << text_.substr(0, 3000);
    const Cluster& cluster = clusters[0];
    EXPECT_EQ(cluster.kind, Kind::kFreeList) << describe(report) << text_.substr(0, 3000);
    EXPECT_EQ(cluster.checkpoints[0], "logits");
    EXPECT_GE(cluster.positions.size(), positions) << describe(report) << text_.substr(0, 3000);
    ASSERT_FALSE(cluster.values.empty());
    EXPECT_EQ(cluster.values[0].begin, 0);
    EXPECT_TRUE(cluster.values[0].end == 2 || cluster.values[0].end == 4) << describe(report);
  }

  const TemporaryFolder temporary_ = TemporaryFolder::create().value();
  const fs::path folder_ = temporary_.path();
  std::string text_;  // of the log
};

// Small rows: the tcache, with safe-linking since glibc 2.32.
TEST_F(ToyLogger, SmallRowsWithAllDigits) {
  for (int round = 0; round < 10; ++round) {
    const Report report = scan_log(10, 9, 6);
    expect_free_list(report, 6);
    EXPECT_NE(describe(report).find("as the tcache's key is"), std::string::npos)
        << describe(report);
    // Some lower halves are NaN, which print without their bits.
    if (text_.find("nan") != std::string::npos) continue;
    EXPECT_NE(describe(report).find("links of successive rows lead"), std::string::npos)
        << describe(report);
  }
}

TEST_F(ToyLogger, SmallRowsWithSixDigits) {
  for (int round = 0; round < 10; ++round) expect_free_list(scan_log(10, 6, 7), 6);
}

// More rows than the tcache takes: the rest is in fastbins, whose chunks have one word.
TEST_F(ToyLogger, ManySmallRows) {
  for (int round = 0; round < 5; ++round) expect_free_list(scan_log(10, 9, 20), 19);
}

// Large rows: the unsorted bin, whose chunks have two links.
TEST_F(ToyLogger, LargeRows) {
  for (int round = 0; round < 10; ++round) {
    const Report report = scan_log(600, 9, 4);
    expect_free_list(report, 4);
    EXPECT_NE(describe(report).find("forward and backward link"), std::string::npos)
        << describe(report);
  }
}

TEST_F(ToyLogger, OneLargeRowHasEqualLinks) {
  const Report report = scan_log(600, 9, 1);
  expect_free_list(report, 1);
  EXPECT_NE(describe(report).find("alone in the unsorted bin"), std::string::npos)
      << describe(report);
}

// The same without a process, for many more heaps: rows of the tcache, which has a link and a key
// in each. The key is random: its halves can look like those of an f64.
TEST(FreedRows, WhereverTheHeapLies) {
  const uint64_t seed = std::random_device{}();
  Random random(seed);
  for (int round = 0; round < rounds(2000); ++round) {
    const int64_t width = 8 + random.below(30), positions = 6 + random.below(8);
    const int digits = round % 2 == 0 ? 6 : 9;
    SCOPED_TRACE(fmt::format("seed {}, round {}, {} digits", seed, round, digits));
    const auto printed = [&](const Row& stored) {
      std::vector<double> values;
      for (int64_t i = 0; i < width; ++i)
        values.push_back(std::stod(fmt::format("{:.{}e}", stored.at(i), digits - 1)));
      Row row = make_row(DType::kF32, values);
      row.digits = digits;
      row.exact = digits >= 8 && std::ranges::none_of(values, [](double v) { return v != v; });
      return row;
    };
    const uint64_t key = random.next();
    const uint64_t heap = 0x555555554000u + random.next() % 0x10000000u * 0x1000 + 0x10;
    MemorySource source;
    for (int64_t position = 0; position < positions; ++position) {
      Row row = gaussian_row(random, DType::kF32, width, 3);
      const uint64_t place = heap + static_cast<uint64_t>(position) * 0x110;
      // The row that was freed first ends the list.
      poke_word(row, 0, place >> 12 ^ (position > 0 ? place - 0x110 : 0));
      poke_word(row, 1, key);
      source.add("logits", position, printed(row));
    }
    const Report report = scan(source);
    const auto clusters = garbage_of(report);
    ASSERT_EQ(clusters.size(), 1u) << describe(report);
    EXPECT_EQ(clusters[0].kind, Kind::kFreeList) << describe(report);
    EXPECT_GE(static_cast<int64_t>(clusters[0].positions.size()), positions - 1);
  }
}

// Printed like "%f" the upper half of an address is 0.0. Whether the lower half or the key shows is
// up to where the heap lies, which differs from run to run.
TEST_F(ToyLogger, RowsPrintedWithoutExponents) {
  int shown = 0;
  for (int round = 0; round < 40; ++round) {
    const Report report = scan_log(10, 0, 6);
    if (report.clean()) {
      // Nothing in the log is larger than a logit.
      for (const RowStats& row : report.rows) EXPECT_LT(row.largest, 1e6 * 0x1p5);
      continue;
    }
    ++shown;
    for (const Cluster& cluster : garbage_of(report))
      EXPECT_TRUE(cluster.kind == Kind::kFreeList || cluster.kind == Kind::kUnknown ||
                  (cluster.kind == Kind::kZeros &&
                   cluster.evidence.find("freed memory has two") != std::string::npos))
          << describe(report);
  }
  EXPECT_GE(shown, 5);
}

}  // namespace
}  // namespace lockstep::forensics
