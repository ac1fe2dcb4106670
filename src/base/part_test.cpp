#include "base/part.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string refusal(const std::vector<Part>& parts, bool partial = false) {
  std::vector<std::string> sources;
  for (size_t i = 0; i < parts.size(); ++i) sources.push_back(fmt::format("file{}", i));
  const auto checked = check_parts(parts, sources, partial);
  return checked.ok() ? "" : checked.error().message;
}

TEST(Parts, AreAllThereInAnyOrder) {
  for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{255}}) {
    std::vector<Part> parts;
    for (int64_t k = 1; k <= count; ++k) parts.push_back({k, count});
    std::ranges::shuffle(parts, std::mt19937(static_cast<unsigned>(count)));
    EXPECT_EQ(refusal(parts), "");
    const Part last = parts.back();
    parts.pop_back();
    if (parts.empty()) continue;
    EXPECT_EQ(refusal(parts), fmt::format("part {} of {} is missing", last.index, count));
    EXPECT_EQ(refusal(parts, true), "");
  }
}

TEST(Parts, GetNeighboursWithAboutTheSameWork) {
  std::mt19937 random(7);
  for (const size_t items : {size_t{1}, size_t{7}, size_t{255}, size_t{257}})
    for (const int64_t parts : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{100}, int64_t{1000}}) {
      std::vector<double> work(items);
      double all = 0;
      double most = 0;
      for (double& each : work) {
        each = std::uniform_real_distribution<>(0.1, 3)(random);
        all += each;
        most = std::max(most, each);
      }
      const std::vector<int64_t> owners = deal(work, parts);
      ASSERT_EQ(owners.size(), items);
      EXPECT_TRUE(std::ranges::is_sorted(owners));
      EXPECT_GE(owners.front(), 1);
      EXPECT_LE(owners.back(), parts);
      std::vector<double> of(static_cast<size_t>(parts) + 1);
      for (size_t i = 0; i < items; ++i) of[static_cast<size_t>(owners[i])] += work[i];
      EXPECT_LE(*std::ranges::max_element(of), all / static_cast<double>(parts) + most + 1e-9);
    }
  EXPECT_EQ(deal(std::vector<double>{1, 100, 1}, 3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(deal(std::vector<double>{1, 1, 1, 1}, 2), (std::vector<int64_t>{1, 1, 2, 2}));
  EXPECT_EQ(deal(std::vector<double>{6, 1, 1, 1}, 2), (std::vector<int64_t>{1, 2, 2, 2}));
  EXPECT_TRUE(deal({}, 3).empty());
}

TEST(Parts, ThatDoNotBelongTogetherAreRefused) {
  EXPECT_EQ(refusal({{1, 2}, {2, 3}}), "file1: part 2 of 3, expected one of 2 parts as file0 is");
  EXPECT_EQ(refusal({{2, 3}, {1, 3}, {2, 3}}, true), "file2: part 2 of 3, which file0 is too");
}

}  // namespace
}  // namespace lockstep
