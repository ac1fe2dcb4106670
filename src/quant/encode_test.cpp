#include "quant/encode.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/float16.h"
#include "base/random.h"
#include "quant/decode.h"

namespace lockstep::quant {
namespace {

std::vector<std::byte> encoded(Format format, const std::vector<float>& x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> bytes(static_cast<size_t>(size_bytes(info(format), n)));
  encode(format, x.data(), n, bytes.data());
  return bytes;
}

std::vector<float> round_trip(Format format, const std::vector<float>& x) {
  std::vector<float> result(x.size());
  decode(format, encoded(format, x).data(), static_cast<int64_t>(x.size()), result.data());
  return result;
}

double rms_error(const std::vector<float>& a, const std::vector<float>& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    total += difference * difference;
  }
  return std::sqrt(total / static_cast<double>(a.size()));
}

std::vector<FormatInfo> encodable_formats() {
  std::vector<FormatInfo> formats;
  for (const FormatInfo& format : all_formats())
    if (encodable(format.format())) formats.push_back(format);
  return formats;
}

TEST(Encode, Encodable) {
  EXPECT_EQ(encodable_formats().size(), 14u);
  EXPECT_FALSE(encodable(Format::kIQ4_NL));
  EXPECT_FALSE(encodable(Format::kIQ4_XS));
  EXPECT_FALSE(encodable(static_cast<Format>(9)));  // Q8_1: known, not decodable
}

// The rows that tests/peer/check_quant_error.py makes too.
constexpr uint64_t kSeed = 100;
constexpr int64_t kValues = 32 * 2048;

std::array<std::vector<float>, 3> test_rows() {
  std::array<std::vector<float>, 3> rows;
  Random gauss(kSeed), laplace(kSeed + 1), student(kSeed + 2);
  for (int64_t i = 0; i < kValues; ++i) {
    rows[0].push_back(static_cast<float>(gauss.gaussian()));
    const double centred = laplace.uniform() - 0.5;
    rows[1].push_back(
        static_cast<float>(std::copysign(std::log(1 - 2 * std::fabs(centred)), -centred)));
    const double top = student.gaussian();
    double squares = 0;
    for (int k = 0; k < 3; ++k) {
      const double g = student.gaussian();
      squares += g * g;
    }
    rows[2].push_back(static_cast<float>(top / std::sqrt(squares / 3)));
  }
  return rows;
}

// llama.cpp's root mean square error on Gaussian, Laplace and Student (3 degrees) rows, as
// tests/peer/check_quant_error.py measures it, and the largest share of it that ours may be: what
// it is now, rounded up. The goal is 1.05.
struct Figures {
  Format format;
  std::array<double, 3> llama;
  double most;
};

constexpr Figures kFigures[] = {
    {Format::kQ4_0, {0.0859511, 0.1523829, 0.2181804}, 0.970},
    {Format::kQ4_1, {0.0784636, 0.1304175, 0.1678423}, 0.902},
    {Format::kQ5_0, {0.0426143, 0.0764315, 0.1122138}, 0.974},
    {Format::kQ5_1, {0.0378575, 0.0630594, 0.0837975}, 0.915},
    {Format::kQ8_0, {0.0053377, 0.0095581, 0.0146523}, 1.000},
    {Format::kQ2_K, {0.2970594, 0.4858539, 0.5927164}, 0.880},
    {Format::kQ3_K, {0.1517555, 0.2505750, 0.3234583}, 0.963},
    {Format::kQ4_K, {0.0716582, 0.1200700, 0.1572387}, 0.982},
    {Format::kQ5_K, {0.0360374, 0.0608275, 0.0813003}, 0.968},
    {Format::kQ6_K, {0.0177861, 0.0308863, 0.0458607}, 0.954},
    {Format::kMXFP4, {0.1147982, 0.1797390, 0.2460936}, 0.977},
};

TEST(Encode, ErrorIsBelowLlamaCpps) {
  const auto rows = test_rows();
  for (const Figures& figures : kFigures) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const double error = rms_error(rows[i], round_trip(figures.format, rows[i]));
      EXPECT_LE(error, figures.llama[i] * figures.most)
          << info(figures.format).name << ", rows " << i << ": share " << error / figures.llama[i];
    }
  }
}

// A scale does not change what a search finds, as long as the half-precision scales stay normal.
TEST(Encode, ErrorScalesWithTheValues) {
  const auto rows = test_rows();
  const std::vector<float> x(rows[0].begin(), rows[0].begin() + 2048);
  for (const Figures& figures : kFigures) {
    const double error = rms_error(x, round_trip(figures.format, x));
    for (const float factor : {0x1p-6f, 0x1p9f}) {
      std::vector<float> scaled = x;
      for (float& value : scaled) value *= factor;
      const double scaled_error = rms_error(scaled, round_trip(figures.format, scaled));
      EXPECT_NEAR(scaled_error / static_cast<double>(factor) / error, 1, 0.02)
          << info(figures.format).name << " times " << factor;
    }
  }
}

TEST(Encode, HalvesRoundToNearestAndSaturate) {
  const std::vector<float> x = {1,     -0.0f,  65504,   65519, 65520,
                                1e30f, -1e30f, 3.4e38f, 1e-8f, 6e-8f};
  const std::vector<float> half = round_trip(Format::kF16, x);
  const std::vector<float> expected = {1,     -0.0f,  65504, 65504, 65504,
                                       65504, -65504, 65504, 0,     5.9604645e-8f};
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(bits_from_float(half[i]), bits_from_float(expected[i])) << x[i];
  const float largest = std::numeric_limits<float>::max();
  const std::vector<float> y = {1, 1.00390625f, 1.01171875f, largest, -largest};
  const std::vector<float> bfloat = round_trip(Format::kBF16, y);
  EXPECT_EQ(bfloat, (std::vector<float>{1, 1, 1.015625f, 0x1.fep127f, -0x1.fep127f}));
  EXPECT_EQ(round_trip(Format::kF32, y), y);
}

TEST(Encode, ZerosStayZeros) {
  for (const FormatInfo& format : encodable_formats()) {
    for (const float zero : {0.0f, -0.0f}) {
      for (const float value : round_trip(format.format(), std::vector<float>(512, zero)))
        ASSERT_EQ(value, 0.0f) << format.name;
    }
  }
}

TEST(Encode, ConstantsStayNear) {
  for (const FormatInfo& format : encodable_formats()) {
    for (const float value : {1.0f, -1.0f, 0.37f, -1234.5f, 1e-3f, 60000.0f}) {
      // Half-precision scales, whole-number scales of few bits; MXFP4's scales are powers of two.
      const float tolerance = format.format() == Format::kMXFP4 ? 0.201f : 0.004f;
      for (const float got : round_trip(format.format(), std::vector<float>(256, value)))
        ASSERT_NEAR(got / value, 1, tolerance) << format.name << " " << value;
    }
  }
}

// One value far above the rest: it must survive.
TEST(Encode, OutliersSurvive) {
  Random random(5);
  for (const FormatInfo& format : encodable_formats()) {
    for (int trial = 0; trial < 20; ++trial) {
      SCOPED_TRACE(fmt::format("{} trial {}", format.name, trial));
      std::vector<float> x(256);
      for (float& value : x) value = static_cast<float>(random.gaussian()) * 0.01f;
      const auto at = static_cast<size_t>(random.below(256));
      x[at] = trial % 2 == 0 ? 100.0f : -100.0f;
      const std::vector<float> got = round_trip(format.format(), x);
      const float tolerance = format.format() == Format::kMXFP4 ? 0.201f : 0.01f;
      EXPECT_NEAR(got[at] / x[at], 1, tolerance);
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(got[i], x[i], i == at ? 20.1f : 1) << "value " << i;
    }
  }
}

// Any finite input: a finite result, no farther from zero than the input reaches.
TEST(Encode, FiniteStaysFinite) {
  const uint64_t seed = 77;
  Random random(seed);
  const float largest = std::numeric_limits<float>::max();
  const float edges[] = {0.0f,    -0.0f,    1e-45f, -1e-45f, 1e-40f,   5.9e-8f, 1e-6f,
                         65504,   -65504,   65520,  5e5f,    8.3e6f,   1e30f,   -1e30f,
                         largest, -largest, 1,      -1,      0x1p-126f};
  for (const FormatInfo& format : encodable_formats()) {
    for (int trial = 0; trial < 300; ++trial) {
      SCOPED_TRACE(fmt::format("{} seed {} trial {}", format.name, seed, trial));
      std::vector<float> x(256);
      const float scale = std::ldexp(1.0f, static_cast<int>(random.below(270)) - 145);
      for (float& value : x) {
        const int64_t kind = random.below(trial % 3 == 0 ? 2 : 20);
        value = kind == 0 ? edges[random.below(std::size(edges))]
                          : static_cast<float>(random.uniform() * 2 - 1) * scale;
      }
      if (trial % 7 == 0) std::fill(x.begin(), x.end(), x[3]);
      float reach = 0;
      for (const float value : x) reach = std::max(reach, std::fabs(value));
      for (const float value : round_trip(format.format(), x)) {
        ASSERT_TRUE(std::isfinite(value));
        // Scales are halves: below 2^-24 a step is at least that.
        ASSERT_LE(static_cast<double>(std::fabs(value)),
                  1.5 * static_cast<double>(reach) + 0x1p-20);
      }
    }
  }
}

// Small values use the smallest scales that halves have instead of vanishing.
TEST(Encode, SmallValuesAreNotLost) {
  for (const Format format : {Format::kQ4_0, Format::kQ5_0, Format::kQ4_K, Format::kQ6_K}) {
    std::vector<float> x(256);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(static_cast<int>(i % 7) - 3) * 0x1p-24f;
    EXPECT_EQ(round_trip(format, x), x) << info(format).name;
  }
}

// Nearer to zero than to the smallest step of a half scale. (MXFP4's scales reach further down.)
TEST(Encode, ValuesBelowTheSmallestStepBecomeZero) {
  Random random(6);
  for (const FormatInfo& format : encodable_formats()) {
    if (format.block_values == 1 || format.format() == Format::kMXFP4) continue;
    for (const float largest : {0x1p-25f, 1e-12f, 1e-30f, 1e-40f, 1e-45f}) {
      std::vector<float> x(256);
      for (float& value : x) value = static_cast<float>(random.uniform() * 2 - 1) * largest;
      for (const float value : round_trip(format.format(), x))
        ASSERT_EQ(value, 0.0f) << format.name << " " << largest;
    }
  }
}

TEST(Encode, OneCallOrManyGiveTheSame) {
  Random random(3);
  for (const FormatInfo& format : encodable_formats()) {
    for (const int64_t n_blocks : {1, 7, 33}) {
      std::vector<float> x(static_cast<size_t>(n_blocks * format.block_values));
      for (float& value : x) value = static_cast<float>(random.gaussian());
      const std::vector<std::byte> together = encoded(format.format(), x);
      std::vector<std::byte> one(static_cast<size_t>(format.block_bytes) + 1);
      for (int64_t b = 0; b < n_blocks; ++b) {
        encode(format.format(), x.data() + b * format.block_values, format.block_values,
               one.data() + 1);
        ASSERT_EQ(std::memcmp(one.data() + 1, together.data() + b * format.block_bytes,
                              static_cast<size_t>(format.block_bytes)),
                  0)
            << format.name;
      }
    }
  }
}

TEST(EncodeDeathTest, ChecksTheCaller) {
  const std::vector<float> x(64);
  std::byte out[64];
  EXPECT_DEATH(encode(Format::kQ4_0, x.data(), 33, out), "33 values in blocks of 32");
  EXPECT_DEATH(encode(Format::kIQ4_NL, x.data(), 32, out), "IQ4_NL has no encoder");
}

}  // namespace
}  // namespace lockstep::quant
