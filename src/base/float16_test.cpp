#include "base/float16.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// The value of a half from its definition, in double.
double half_by_definition(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  double magnitude;
  if (exponent == 31)
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  else if (exponent == 0)
    magnitude = std::ldexp(fraction, -24);
  else
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryValueDecodesByDefinitionAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double expected = half_by_definition(half);
    const float actual = half_to_float(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << bits;
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(actual)))) << bits;
      continue;
    }
    EXPECT_EQ(static_cast<double>(actual), expected) << bits;
    EXPECT_EQ(std::signbit(actual), (half & 0x8000) != 0) << bits;
    EXPECT_EQ(float_to_half(actual), half) << bits;
  }
}

TEST(Half, RoundsToNearestWithTiesToEven) {
  // Between every two neighbours: the middle goes to the even one, and a hair to either side to
  // its own.
  for (uint16_t low = 0; low < 0x7c00; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const double top = high == 0x7c00 ? 65536.0 : half_by_definition(high);
    const auto middle = static_cast<float>((half_by_definition(low) + top) / 2);
    EXPECT_EQ(float_to_half(middle), (low & 1) == 0 ? low : high) << low;
    EXPECT_EQ(float_to_half(std::nextafter(middle, 0.0f)), low) << low;
    EXPECT_EQ(float_to_half(std::nextafter(middle, 1e30f)), high) << low;
    EXPECT_EQ(float_to_half(-middle), ((low & 1) == 0 ? low : high) | 0x8000) << low;
  }
  EXPECT_EQ(float_to_half(1e30f), 0x7c00);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(Bfloat, EveryValueComesBackAndMiddlesGoToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto bfloat = static_cast<uint16_t>(bits);
    const float value = bfloat_to_float(bfloat);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bfloat_to_float(float_to_bfloat(value)))) << bits;
      continue;
    }
    EXPECT_EQ(float_to_bfloat(value), bfloat);
    if ((bits & 0x7fff) < 0x7f80) {
      const float middle = float_from_bits((bits << 16) | 0x8000u);
      EXPECT_EQ(float_to_bfloat(middle), (bits & 1) == 0 ? bits : bits + 1);
      EXPECT_EQ(float_to_bfloat(float_from_bits((bits << 16) | 0x7fffu)), bits);
      EXPECT_EQ(float_to_bfloat(float_from_bits((bits << 16) | 0x8001u)), bits + 1);
    }
  }
}

}  // namespace
}  // namespace lockstep
