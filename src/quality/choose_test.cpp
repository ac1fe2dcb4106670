#include <random>

#include <gtest/gtest.h>

#include "base/random.h"
#include "quality/recipe.h"

namespace lockstep::quality {
namespace {

// Sizes and costs as formats have them: more bytes, and nearly always less cost.
std::vector<Item> random_items(Random& random, int64_t count) {
  std::vector<Item> items;
  for (int64_t i = 0; i < count; ++i) {
    Item& item = items.emplace_back();
    const int64_t values = 256 * (1 + random.below(20));
    const double sensitivity = std::exp(3 * random.gaussian());
    for (const double bits : {2.6, 3.4, 4.5, 5.5, 6.6, 8.5})
      item.candidates.push_back(
          {nullptr, static_cast<int64_t>(bits * static_cast<double>(values) / 8),
           sensitivity * std::exp2(-2 * bits) * (0.8 + 0.4 * random.uniform())});
  }
  return items;
}

struct Total {
  int64_t bytes = 0;
  double kl = 0;
};

Total total(const std::vector<Item>& items, const std::vector<size_t>& chosen) {
  Total out;
  for (size_t i = 0; i < items.size(); ++i) {
    out.bytes += items[i].candidates[chosen[i]].bytes;
    out.kl += items[i].candidates[chosen[i]].kl;
  }
  return out;
}

// Every way to choose.
double least_possible(const std::vector<Item>& items, int64_t bytes) {
  std::vector<size_t> chosen(items.size());
  double best = 1e300;
  while (true) {
    const Total now = total(items, chosen);
    if (now.bytes <= bytes) best = std::min(best, now.kl);
    size_t i = 0;
    while (i < items.size() && ++chosen[i] == items[i].candidates.size()) chosen[i++] = 0;
    if (i == items.size()) return best;
  }
}

TEST(ChooseCandidates, IsNearTheBestThatIsPossible) {
  Random random{std::random_device{}()};
  double worst = 1, sum = 0;
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<Item> items = random_items(random, 5);
    int64_t least = 0, most = 0;
    for (const Item& item : items) {
      least += item.candidates.front().bytes;
      most += item.candidates.back().bytes;
    }
    const int64_t bytes = least + random.below(most - least);
    const auto chosen = choose_candidates(items, bytes);
    ASSERT_TRUE(chosen.ok()) << chosen.error().message;
    const Total found = total(items, *chosen);
    EXPECT_LE(found.bytes, bytes);
    const double ratio = found.kl / least_possible(items, bytes);
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_LT(worst, 4) << "with five items one that does not fit weighs a lot";
  EXPECT_LT(sum / kRounds, 1.3);
}

TEST(ChooseCandidates, MoreBytesNeverCostMore) {
  Random random(3);
  const std::vector<Item> items = random_items(random, 100);
  int64_t least = 0, most = 0;
  for (const Item& item : items) {
    least += item.candidates.front().bytes;
    most += item.candidates.back().bytes;
  }
  double last = 1e300;
  for (int step = 0; step <= 20; ++step) {
    const int64_t bytes = least + (most - least) * step / 20;
    const Total found = total(items, choose_candidates(items, bytes).value());
    EXPECT_LE(found.bytes, bytes);
    EXPECT_GE(found.bytes, step == 20 ? 0 : bytes - 256 * 20);  // nearly all of it is used
    EXPECT_LE(found.kl, last * 1.0001);
    last = found.kl;
  }
}

TEST(ChooseCandidates, TooFewBytesAreAnError) {
  const std::vector<Item> items = {{"a", {{nullptr, 100, 1}, {nullptr, 60, 2}}},
                                   {"b", {{nullptr, 50, 1}}}};
  EXPECT_EQ(choose_candidates(items, 109).error().message,
            "109 bytes are too few: the matrices have 110 in their smallest formats");
  EXPECT_EQ(*choose_candidates(items, 110), (std::vector<size_t>{1, 0}));
  EXPECT_EQ(*choose_candidates(items, 149), (std::vector<size_t>{1, 0}));
  EXPECT_EQ(*choose_candidates(items, 150), (std::vector<size_t>{0, 0}));
}

}  // namespace
}  // namespace lockstep::quality
