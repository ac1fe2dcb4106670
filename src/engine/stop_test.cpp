#include "engine/stop.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "base/random.h"

namespace lockstep::engine {
namespace {

TEST(StopFilter, PassesTextThroughWithoutStops) {
  StopFilter filter({});
  EXPECT_EQ(filter.push("abc"), "abc");
  EXPECT_EQ(filter.finish(), "");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilter, HoldsBackWhatMayBeAStop) {
  StopFilter filter({"END"});
  EXPECT_EQ(filter.push("the E"), "the ");
  EXPECT_EQ(filter.push("N"), "");
  EXPECT_EQ(filter.push("d"), "ENd");
  EXPECT_EQ(filter.push("EEN"), "E");
  EXPECT_EQ(filter.finish(), "EN");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopFilter, TakesTheEarliestOfSeveral) {
  StopFilter filter({"xyz", "yz", ""});
  EXPECT_EQ(filter.push("a xyz b yz"), "a ");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

// However the text is cut into pieces, what comes out is the text up to the first stop.
TEST(StopFilter, AnyCutGivesTheSame) {
  Random random(std::random_device{}());
  for (int round = 0; round < 2000; ++round) {
    const auto letters = [&](int64_t size) {
      std::string text;
      for (int64_t i = 0; i < size; ++i) text += static_cast<char>('a' + random.below(2));
      return text;
    };
    const std::string text = letters(random.below(40));
    const std::vector<std::string> stops = {letters(1 + random.below(6)),
                                            letters(1 + random.below(6))};
    const size_t end = std::min({text.find(stops[0]), text.find(stops[1]), text.size()});
    StopFilter filter(stops);
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const auto size = static_cast<size_t>(1 + random.below(5));
      out += filter.push(text.substr(i, size));
      i += size;
    }
    EXPECT_EQ(filter.stopped(), end < text.size());
    EXPECT_EQ(out + filter.finish(), text.substr(0, end))
        << "text " << text << ", stops " << stops[0] << " " << stops[1];
  }
}

}  // namespace
}  // namespace lockstep::engine
