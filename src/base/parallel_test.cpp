#include "base/parallel.h"

#include <atomic>
#include <chrono>
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

// All helpers are at work, one of them at something that a second thread is wanted for. The caller,
// who has nothing left to do, is that thread.
TEST(Parallel, WhoWaitsHelpsTheOthers) {
  constexpr int kThreads = 11;  // more than elsewhere here: so many helpers, and no more
  const auto caller = std::this_thread::get_id();
  std::atomic<int> arrived{0};
  std::atomic<bool> begun{false};
  std::atomic<bool> done{false};
  std::atomic<bool> helped{false};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto wait_for = [&](const auto& what) {
    while (!what() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  };
  const auto with_a_second_thread = [&] {
    std::atomic<int> together{0};
    const auto body = [&](int64_t, int64_t) {
      ++together;
      wait_for([&] { return together == 2; });
      if (std::this_thread::get_id() == caller) helped = true;
    };
    parallel_for(2, 1, body, 2);
    done = true;
  };
  parallel_for(
      kThreads, 1,
      [&](int64_t, int64_t) {
        ++arrived;
        if (std::this_thread::get_id() == caller)
          wait_for([&] { return arrived == kThreads; });
        else if (!begun.exchange(true))
          with_a_second_thread();
        else
          wait_for([&] { return done.load(); });
      },
      kThreads);
  EXPECT_TRUE(helped);
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
