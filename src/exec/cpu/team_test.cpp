#include "exec/cpu/team.h"

#include <algorithm>
#include <new>
#include <random>
#include <stdexcept>

#include <gtest/gtest.h>

namespace lockstep::exec::cpu {
namespace {

// Every member meets `meetings` times; nobody may be further than one meeting ahead of another.
void expect_works(Team& team, int meetings) {
  std::vector<std::atomic<int>> reached(static_cast<size_t>(meetings) + 1);
  team.run([&](int) {
    for (int m = 0; m < meetings; ++m) {
      ++reached[static_cast<size_t>(m)];
      team.meet();
      EXPECT_EQ(reached[static_cast<size_t>(m)], team.size());
    }
    ++reached.back();
  });
  EXPECT_EQ(reached.back(), team.size());
}

TEST(Team, MeetsAndEndsTogether) {
  for (const int size : {1, 2, 3, 7}) {
    Team team(size);
    EXPECT_EQ(team.size(), size);
    for (const int meetings : {0, 1, 257}) expect_works(team, meetings);
  }
}

TEST(Team, AnExceptionOfAnyMemberAtAnyPlaceEndsOnlyTheJob) {
  for (const int size : {1, 2, 3, 7}) {
    Team team(size);
    for (int thrower = 0; thrower < size; ++thrower)
      for (int place = 0; place <= 4; ++place) {
        const auto job = [&](int member) {
          for (int m = 0; m < 4; ++m) {
            if (member == thrower && m == place) throw std::runtime_error("on purpose");
            team.meet();
          }
          if (member == thrower && place == 4) throw std::runtime_error("on purpose");
        };
        EXPECT_THROW(team.run(job), std::runtime_error);
        expect_works(team, 3);
      }
  }
}

TEST(Team, SeveralMembersMayThrowAtOnceAndAtOtherPlaces) {
  std::mt19937 random(std::random_device{}());
  Team team(4);
  for (int round = 0; round < 300; ++round) {
    int places[4];
    for (int& place : places) place = static_cast<int>(random() % 6);
    const auto job = [&](int member) {
      for (int m = 0; m < 5; ++m) {
        if (places[member] == m) throw std::bad_alloc();
        team.meet();
      }
    };
    const bool throws = *std::min_element(places, places + 4) < 5;
    if (throws) {
      EXPECT_THROW(team.run(job), std::bad_alloc);
    } else {
      team.run(job);
    }
    if (round % 10 == 0) expect_works(team, 5);
  }
}

TEST(Team, LeavesTheCallersCoresAsTheyWere) {
  const auto cores = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
  };
  const cpu_set_t before = cores();
  Team team(2);
  // Wherever the caller is, also on a core that a helper is bound to.
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &before)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);  // it is still there, mostly
    expect_works(team, 3);
    EXPECT_THROW(team.run([](int) { throw std::runtime_error("on purpose"); }), std::runtime_error);
    const cpu_set_t after = cores();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  }
}

}  // namespace
}  // namespace lockstep::exec::cpu
