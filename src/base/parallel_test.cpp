#include "base/parallel.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Parallel, CoversEachPlaceOnce) {
  for (const int64_t count : {0, 1, 7, 255, 257}) {
    for (const int threads : {1, 2, 5}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      parallel_for(
          count, 3,
          [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
          },
          threads);
      for (const auto& times : seen) EXPECT_EQ(times, 1);
    }
  }
}

TEST(Parallel, WithinOthersAndBesideOthers) {
  std::atomic<int64_t> sum{0};
  const auto outer = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      parallel_for(
          257, 1, [&](int64_t first, int64_t last) { sum += (last - first) * i; }, 7);
  };
  std::vector<std::jthread> callers;
  for (int i = 0; i < 4; ++i) callers.emplace_back([&] { parallel_for(31, 1, outer, 5); });
  callers.clear();
  EXPECT_EQ(sum, 4 * 257 * (30 * 31 / 2));
}

TEST(Parallel, ThrowsWhatABodyThrew) {
  for (const int threads : {1, 2, 5}) {
    for (int64_t place = 0; place < 64; place += 9) {
      std::atomic<int> under_way{0};
      const auto body = [&](int64_t begin, int64_t end) {
        ++under_way;
        for (int64_t i = begin; i < end; ++i)
          if (i == place) {
            --under_way;
            throw std::runtime_error("on purpose");
          }
        --under_way;
      };
      EXPECT_THROW(parallel_for(64, 1, body, threads), std::runtime_error);
      EXPECT_EQ(under_way, 0);
    }
  }
}

}  // namespace
}  // namespace lockstep
