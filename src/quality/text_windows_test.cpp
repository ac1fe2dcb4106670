#include "quality/text_windows.h"

#include <numeric>

#include <gtest/gtest.h>

namespace lockstep::quality {
namespace {

std::vector<exec::TokenId> text_of(int64_t tokens) {
  std::vector<exec::TokenId> out(static_cast<size_t>(tokens));
  std::iota(out.begin(), out.end(), 100);
  return out;
}

TEST(CutText, EveryTokenAfterTheFirstContextIsScoredOnce) {
  for (const int64_t tokens : std::vector<int64_t>{2, 3, 7, 255, 257, 1000})
    for (const int64_t length : std::vector<int64_t>{3, 4, 16, 255, 512})
      for (const bool begin : {false, true}) {
        const int64_t room = length - (begin ? 1 : 0);
        WindowShape shape{length, std::max<int64_t>(1, room / 2), {}};
        if (begin) shape.begin = 7;
        const auto windows = cut_text(text_of(tokens), shape);
        ASSERT_TRUE(windows.ok());
        const int64_t context = windows->front().first_scored - (begin ? 1 : 0);
        EXPECT_EQ(context, tokens < room ? std::max<int64_t>(1, shape.context * tokens / room)
                                         : shape.context);
        exec::TokenId next = static_cast<exec::TokenId>(100 + context);
        for (const Window& window : *windows) {
          EXPECT_LE(static_cast<int64_t>(window.tokens.size()), length);
          EXPECT_GE(window.first_scored, windows->front().first_scored);
          if (begin) {
            EXPECT_EQ(window.tokens[0], 7);
          }
          for (size_t i = begin ? 2 : 1; i < window.tokens.size(); ++i)
            EXPECT_EQ(window.tokens[i], window.tokens[i - 1] + 1);
          for (auto i = static_cast<size_t>(window.first_scored); i < window.tokens.size(); ++i)
            EXPECT_EQ(window.tokens[i], next++);
        }
        EXPECT_EQ(next, 100 + tokens);
      }
}

TEST(CutText, NothingToPredictIsAnError) {
  EXPECT_EQ(cut_text(text_of(1), {8, 4}).error().message,
            "the text has 1 token; at least 2 are needed, one to predict from and one to predict");
  EXPECT_EQ(cut_text({}, {8, 4}).error().message,
            "the text has 0 tokens; at least 2 are needed, one to predict from and one to predict");
}

TEST(Spread, TakesWindowsFromAllOverTheText) {
  const auto windows = cut_text(text_of(1000), {16, 4});
  ASSERT_TRUE(windows.ok());
  const auto few = spread(*windows, 3);
  ASSERT_EQ(few.size(), 3u);
  EXPECT_LT(few[0].tokens[0], 100 + 333);
  EXPECT_GT(few[2].tokens[0], 100 + 666);
  EXPECT_EQ(spread(*windows, 1).size(), 1u);
  EXPECT_EQ(spread(*windows, 5000).size(), windows->size());
}

}  // namespace
}  // namespace lockstep::quality
