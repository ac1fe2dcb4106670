#include "cli/log_problems.h"

#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

std::string printed(int64_t count) {
  std::vector<trace::JsonlProblem> problems;
  for (int64_t i = 1; i <= count; ++i)
    problems.push_back({.line = i, .column = 7, .message = "odd", .last_line = i});
  testing::internal::CaptureStderr();
  print_problems(problems, "a.jsonl", "--json");
  return testing::internal::GetCapturedStderr();
}

TEST(LogProblems, TheFirstTwentyAreShown) {
  EXPECT_EQ(printed(0), "");
  for (const int64_t count : {1, 7, 20, 21, 257}) {
    SCOPED_TRACE(count);
    std::string expected;
    for (int64_t i = 1; i <= std::min<int64_t>(count, 20); ++i)
      expected += fmt::format("a.jsonl:{}:7: odd\n", i);
    if (count > 20) expected += fmt::format("... and {} more (--json has all)\n", count - 20);
    EXPECT_EQ(printed(count), expected);
  }
}

TEST(LogProblems, JsonHasAll) {
  EXPECT_EQ(problems_json({}).dump(), "[]");
  const std::vector<trace::JsonlProblem> problems(257, {.line = 3,
                                                        .column = 5,
                                                        .message = "\"odd\"",
                                                        .truncated = true,
                                                        .lines = 2,
                                                        .last_line = 9});
  const auto json = problems_json(problems);
  ASSERT_EQ(json.size(), 257u);
  EXPECT_EQ(json[256].dump(),
            R"({"line":3,"column":5,"message":"\"odd\"","truncated":true,"kept":false,"lines":2,)"
            R"("last_line":9})");
}

}  // namespace
}  // namespace lockstep::cli
