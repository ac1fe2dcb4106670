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

TEST(Parts, ThatDoNotBelongTogetherAreRefused) {
  EXPECT_EQ(refusal({{1, 2}, {2, 3}}), "file1: part 2 of 3, expected one of 2 parts as file0 is");
  EXPECT_EQ(refusal({{2, 3}, {1, 3}, {2, 3}}, true), "file2: part 2 of 3, which file0 is too");
}

}  // namespace
}  // namespace lockstep
