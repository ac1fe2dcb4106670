#include "exec/cuda/tokens/shared_by_heads.h"

#include <gtest/gtest.h>

namespace lockstep::exec::cuda {
namespace {

TEST(SharedByHeads, EqualOnesAreTakenAndOthersAreNot) {
  const float cosines[2] = {}, sines[2] = {};
  const Rotation rotation{cosines, sines, 32, false};
  std::optional<Rotation> taken;
  EXPECT_TRUE(take_shared(taken, rotation));
  EXPECT_TRUE(take_shared(taken, rotation));
  for (const Rotation& other :
       {Rotation{cosines + 1, sines, 32, false}, Rotation{cosines, sines + 1, 32, false},
        Rotation{cosines, sines, 31, false}, Rotation{cosines, sines, 32, true}}) {
    EXPECT_FALSE(take_shared(taken, other));
    EXPECT_EQ(taken, rotation);
  }
  std::optional<float> epsilon;
  EXPECT_TRUE(take_shared(epsilon, 1e-5f));
  EXPECT_TRUE(take_shared(epsilon, 1e-5f));
  EXPECT_FALSE(take_shared(epsilon, 1e-6f));
}

}  // namespace
}  // namespace lockstep::exec::cuda
