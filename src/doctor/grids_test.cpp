#include "doctor/grids.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "base/float16.h"
#include "base/random.h"

namespace lockstep::doctor {
namespace {

const Grid& grid_named(std::string_view name) {
  for (const auto& all : {plain_grids(), scaled_grids()})
    for (const Grid& grid : all)
      if (grid.name == name) return grid;
  throw std::runtime_error("no such grid");
}

TEST(Grids, HalfAndBfloatAreThoseOfTheBits) {
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    const float x = float_from_bits(static_cast<uint32_t>(random.next()));
    if (!std::isfinite(x)) continue;
    // Subnormal bfloats too.
    EXPECT_EQ(nearest(grid_named("bf16"), static_cast<double>(x)),
              static_cast<double>(bfloat_to_float(float_to_bfloat(x))));
    const double in_range = std::ldexp(static_cast<double>(x), -std::ilogb(x) + i % 45 - 26);
    EXPECT_EQ(nearest(grid_named("f16"), in_range),
              static_cast<double>(half_to_float(float_to_half(static_cast<float>(in_range)))))
        << in_range;
  }
}

TEST(Grids, AllNumbersOfEightBitFloats) {
  // e4m3: seven bits without a sign; 0x7f is NaN. e5m2: 0x7c and more are not finite.
  const auto value = [](int bits, int fraction, int bias) {
    const int e = bits >> fraction;
    const double f = static_cast<double>(bits & ((1 << fraction) - 1)) / (1 << fraction);
    return e == 0 ? std::ldexp(f, 1 - bias) : std::ldexp(1 + f, e - bias);
  };
  const auto check = [&](const Grid& grid, int count, int fraction, int bias) {
    for (int bits = 1; bits < count; ++bits) {
      const double here = value(bits, fraction, bias);
      const double below = value(bits - 1, fraction, bias);
      EXPECT_EQ(nearest(grid, here), here);
      EXPECT_EQ(nearest(grid, -here), -here);
      EXPECT_EQ(nearest(grid, here - 0.49 * (here - below)), here);
      EXPECT_EQ(nearest(grid, here - 0.51 * (here - below)), below);
    }
    EXPECT_EQ(nearest(grid, 2 * value(count - 1, fraction, bias)),
              value(count - 1, fraction, bias));
  };
  check(grid_named("e4m3"), 0x7f, 3, 7);
  check(grid_named("e5m2"), 0x7c, 2, 15);
}

TEST(Grids, RoundedRowsAreOnTheirGridAndOthersAreNot) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  Random random(seed);
  for (const int64_t width : {32, 96, 255, 257}) {
    std::vector<double> row(static_cast<size_t>(width));
    for (double& x : row) x = static_cast<double>(static_cast<float>(random.gaussian()));
    for (const auto& all : {plain_grids(), scaled_grids()})
      for (const Grid& grid : all) {
        std::vector<double> rounded = row;
        round_row(grid, rounded, 3.25);
        for (double& x : rounded) x = static_cast<double>(static_cast<float>(x));
        // With so few numbers a block may be on it by chance; not most.
        EXPECT_LE(count_on(grid, row), width / 4) << grid.name;
        if (grid.scale == detail::Scale::kTensor) continue;
        EXPECT_EQ(count_on(grid, rounded), width) << grid.name << " seed " << seed;
        // Rounding again changes nothing that single precision shows.
        std::vector<double> again = rounded;
        round_row(grid, again, 3.25);
        if (grid.half_scale) continue;
        for (size_t i = 0; i < row.size(); ++i)
          EXPECT_NEAR(again[i], rounded[i], 1e-6 * std::fabs(rounded[i])) << grid.name;
      }
  }
}

TEST(Grids, EdgesOfNumbers) {
  const Grid& half = grid_named("f16");
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(nearest(half, 65519.0), 65504.0);
  EXPECT_EQ(nearest(half, 65520.0), inf);
  EXPECT_EQ(nearest(half, 0x1p-25), 0.0);
  EXPECT_EQ(nearest(half, 0x1.8p-25), 0x1p-24);
  EXPECT_EQ(nearest(half, -inf), -inf);
  EXPECT_TRUE(std::isnan(nearest(half, std::nan(""))));
  std::vector<double> zeros(33);
  for (const Grid& grid : scaled_grids()) {
    round_row(grid, zeros, 0);
    for (const double x : zeros) EXPECT_EQ(x, 0);
  }
}

}  // namespace
}  // namespace lockstep::doctor
