#include "exec/rope_table.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace lockstep::exec {
namespace {

op::Rope rope_of(int64_t dims) {
  op::Rope rope;
  rope.head_size = rope.dims = dims;
  rope.magnitude = 1.19;
  return rope;
}

TEST(RopeTable, IsTheCosineAndTheSineOfEachAngle) {
  RopeTable table(rope_of(14));
  for (const int64_t first : {0, 1, 63, 64, 127, 131071, 1 << 20}) {
    table.fill(first, 257);
    ASSERT_EQ(table.cosines.size(), 257u * 7);
    for (size_t t = 0; t < 257; ++t)
      for (size_t i = 0; i < 7; ++i) {
        const double angle =
            static_cast<double>(first + static_cast<int64_t>(t)) * table.frequencies[i];
        // Half a unit of single precision's last place, and a little of double's.
        EXPECT_NEAR(table.cosines[t * 7 + i], std::cos(angle) * table.magnitude, 6.1e-8);
        EXPECT_NEAR(table.sines[t * 7 + i], std::sin(angle) * table.magnitude, 6.1e-8);
      }
  }
}

TEST(RopeTable, DependsOnThePositionAlone) {
  std::mt19937_64 random(std::random_device{}());
  RopeTable whole(rope_of(32)), piece(rope_of(32));
  whole.fill(1000, 300);
  for (int n = 0; n < 50; ++n) {
    const auto first = static_cast<int64_t>(random() % 300);
    const auto count = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(300 - first));
    piece.fill(1000 + first, count);
    const auto at = static_cast<size_t>(first) * 16;
    for (size_t i = 0; i < piece.cosines.size(); ++i) {
      ASSERT_EQ(piece.cosines[i], whole.cosines[at + i]) << first << ", " << count;
      ASSERT_EQ(piece.sines[i], whole.sines[at + i]) << first << ", " << count;
    }
  }
}

}  // namespace
}  // namespace lockstep::exec
