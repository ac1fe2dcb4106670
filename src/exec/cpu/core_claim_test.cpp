#include "exec/cpu/core_claim.h"

#include <csignal>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::exec::cpu {
namespace {

constexpr int kNoCore = 1'000'003;  // of no machine: a run beside the test does not matter

TEST(CoreClaim, IsHeldByOne) {
  CoreClaim first(kNoCore);
  ASSERT_TRUE(first.held());
  EXPECT_FALSE(CoreClaim(kNoCore).held());
  EXPECT_TRUE(CoreClaim(kNoCore + 1).held());
  CoreClaim moved = std::move(first);
  EXPECT_FALSE(CoreClaim(kNoCore).held());
  moved = CoreClaim(kNoCore + 2);
  EXPECT_TRUE(CoreClaim(kNoCore).held());
}

TEST(CoreClaim, IsFreeWhenItsProcessWasKilled) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const CoreClaim claim(kNoCore);
    const char held = claim.held() ? 'y' : 'n';
    static_cast<void>(!::write(ready[1], &held, 1));
    ::pause();
  }
  char held = 0;
  ASSERT_EQ(::read(ready[0], &held, 1), 1);
  EXPECT_EQ(held, 'y');
  EXPECT_FALSE(CoreClaim(kNoCore).held());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(CoreClaim(kNoCore).held());
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace lockstep::exec::cpu
