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

TEST(StopFilter, TakesTheFirstToBeCompleteAndTheLongestOfThose) {
  StopFilter filter({"yz", "xyz", ""});
  EXPECT_EQ(filter.push("a xyz b yz"), "a ");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

// However the text is cut into pieces, what comes out is the text before the stop.
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
    // The shortest beginning of the text that ends with a stop, without that stop.
    size_t end = text.size();
    bool stops_there = false;
    for (size_t size = 1; size <= text.size() && !stops_there; ++size)
      for (const std::string& stop : stops)
        if (std::string_view(text).substr(0, size).ends_with(stop)) {
          end = std::min(end, size - stop.size());
          stops_there = true;
        }
    StopFilter filter(stops);
    std::string out;
    for (size_t i = 0; i < text.size();) {
      const auto size = static_cast<size_t>(1 + random.below(5));
      out += filter.push(text.substr(i, size));
      i += size;
    }
    EXPECT_EQ(filter.stopped(), stops_there);
    EXPECT_EQ(out + filter.finish(), text.substr(0, end))
        << "text " << text << ", stops " << stops[0] << " " << stops[1];
  }
}

}  // namespace
}  // namespace lockstep::engine
