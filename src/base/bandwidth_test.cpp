#include "base/bandwidth.h"

#include <cmath>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Bandwidth, IsAFinitePositiveNumberForAnyThreads) {
  for (const int threads : {1, 2, 3, 7}) {
    SCOPED_TRACE(threads);
    const auto measured = measure_read_bandwidth(threads, int64_t{32} << 20);
    ASSERT_TRUE(measured.ok());
    EXPECT_TRUE(std::isfinite(measured->bytes_per_second));
    EXPECT_GT(measured->bytes_per_second, 0);
    // Whole huge pages for each thread, and no more than was asked for.
    EXPECT_EQ(measured->buffer_bytes % (threads * (int64_t{2} << 20)), 0);
    EXPECT_LE(measured->buffer_bytes, int64_t{32} << 20);
    EXPECT_GT(measured->buffer_bytes, int64_t{16} << 20);
  }
}

TEST(Bandwidth, ABufferOfNothingIsAPageForEachThread) {
  const auto measured = measure_read_bandwidth(3, 0);
  ASSERT_TRUE(measured.ok());
  EXPECT_EQ(measured->buffer_bytes, 3 * (int64_t{2} << 20));
  EXPECT_GT(measured->bytes_per_second, 0);
}

TEST(Bandwidth, MemoryThatIsNotThereIsAnError) {
  EXPECT_FALSE(measure_read_bandwidth(1, int64_t{1} << 60).ok());
}

TEST(Bandwidth, TheBufferIsOfASensibleSize) {
  EXPECT_GT(bandwidth_buffer_bytes(), 0);
  EXPECT_LE(bandwidth_buffer_bytes(), int64_t{2} << 30);
}

}  // namespace
}  // namespace lockstep
