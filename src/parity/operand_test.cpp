#include "parity/operand.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "parity/noise_test_support.h"

namespace lockstep::parity {
namespace {

Operand operand(std::string_view name) {
  detail::PrecisionName parts;
  EXPECT_TRUE(detail::read_precision_name("weights", name, &parts)) << name;
  return operand_of(parts);
}

double rounded(std::string_view name, double x) {
  Rounded out(1, 1);
  out.add(operand(name), {&x, 1}, 0, 0);
  EXPECT_EQ(out.exact, out.errors.values[0] == 0);
  return x + out.errors.values[0];
}

TEST(Operand, EightBitFloatingPoint) {
  // Numbers of the type stay; between two of them the even one wins; beyond the last is the last.
  const struct {
    const char* name;
    int fractions;
    int least;
    double largest;
  } types[] = {{"e4m3", 3, -6, 448}, {"e5m2", 2, -14, 57344}};
  for (const auto& type : types) {
    double previous = 0;
    const double spacing = std::ldexp(1, type.least - type.fractions);
    for (double x = spacing; x <= type.largest;) {
      EXPECT_EQ(rounded(type.name, x), x) << type.name;
      EXPECT_EQ(rounded(type.name, -x), -x);
      EXPECT_EQ(rounded(type.name, x * 0.51 + previous * 0.49), x);
      EXPECT_EQ(rounded(type.name, x * 0.49 + previous * 0.51), previous);
      previous = x;
      x += std::max(spacing, std::ldexp(1, std::ilogb(x) - type.fractions));
    }
    EXPECT_EQ(previous, type.largest);
    EXPECT_EQ(rounded(type.name, 1e9), type.largest);
    EXPECT_EQ(rounded(type.name, -1e9), -type.largest);
    EXPECT_EQ(rounded(type.name, 1.5 * spacing), 2 * spacing);
    EXPECT_EQ(rounded(type.name, 0.5 * spacing), 0);
    EXPECT_EQ(rounded(type.name, 2.5 * spacing), 2 * spacing);
  }
}

TEST(Operand, PlainTypesAndTf32) {
  Random random(fresh_seed());
  for (int i = 0; i < 2000; ++i) {
    const double exact = random.gaussian() * std::exp(random.gaussian() * 8);
    const double x = round_to(exact, DType::kF32);
    EXPECT_EQ(rounded("bf16", x), round_to(x, DType::kBF16));
    EXPECT_NEAR(rounded("f32", exact), x, 1e-14 * std::fabs(x));
    if (std::fabs(x) < 6e4) {
      EXPECT_EQ(rounded("f16", x), round_to(x, DType::kF16));
    }
    const double cut = rounded("tf32", x);
    EXPECT_LE(std::fabs(cut), std::fabs(x));
    EXPECT_LT(std::fabs(x - cut), 0x1p-10 * std::fabs(x));
    EXPECT_EQ(rounded("tf32", cut), cut);
  }
}

TEST(Operand, Scales) {
  Matrix x(2, 5);
  x.values = {1, -2, 4, 0.01, 0, 100, 0, 0, 0, 3};
  const auto step = [&](std::string_view name, int64_t row, int64_t column) {
    return std::sqrt(12 * round_rows(operand(name), x).variances.row(row)[column]);
  };
  EXPECT_NEAR(step("int8:row", 0, 0), 4.0 / 127, 1e-12);
  EXPECT_NEAR(step("int8:row", 1, 4), 100.0 / 127, 1e-12);
  EXPECT_NEAR(step("int8:tensor", 0, 0), 100.0 / 127, 1e-12);
  EXPECT_NEAR(step("int8:block2", 0, 1), 2.0 / 127, 1e-12);
  EXPECT_NEAR(step("int8:block2", 0, 4), 0, 1e-12);
  EXPECT_NEAR(step("int8:block2", 1, 4), 3.0 / 127, 1e-12);
  const Rounded row = round_rows(operand("int8:row"), x);
  EXPECT_NEAR(row.errors.row(0)[0], 32 * 4.0 / 127 - 1, 1e-12);
  EXPECT_NEAR(row.errors.row(0)[3], -0.01, 1e-12);  // lost beside the 4
  // The largest becomes the type's largest: nothing saturates.
  const Rounded small = round_rows(operand("e4m3:row"), x);
  EXPECT_NEAR(small.errors.row(1)[0], 0, 1e-12);
  EXPECT_LT(std::fabs(small.errors.row(1)[4]), 3.0 / 16);
}

TEST(Operand, PlainErrorsAreThoseOfEachNumber) {
  Random random(fresh_seed());
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32})
    for (const size_t count : {size_t{1}, size_t{7}, size_t{8}, size_t{255}, size_t{257}}) {
      const Operand to = plain_operand(dtype);
      std::vector<float> numbers(count);
      std::vector<double> others(count);
      for (size_t i = 0; i < count; ++i) {
        numbers[i] = static_cast<float>(random.gaussian() * std::exp(random.gaussian() * 9));
        others[i] = random.gaussian();
      }
      numbers[0] = random.below(2) == 0 ? -0.0F : 1e-41F;
      Rounded plain(1, static_cast<int64_t>(count));
      plain.add(to, std::vector<double>(numbers.begin(), numbers.end()), 0, 0);
      double expected = 0;
      double size = 0;
      for (size_t i = 0; i < count; ++i) {
        const double x = static_cast<double>(numbers[i]);
        const double error = rounded(dtype == DType::kF16    ? "f16"
                                     : dtype == DType::kBF16 ? "bf16"
                                                             : "f32",
                                     x) -
                             x;
        EXPECT_EQ(plain.errors.values[i], error) << x;
        expected += error * others[i];
        size += std::fabs(error * others[i]);
      }
      const PlainErrors found = plain_errors(to, numbers, others.data());
      EXPECT_NEAR(found.known, expected, 1e-13 * size);
      EXPECT_EQ(found.exact, plain.exact);
      // Numbers of the type stay as they are, but for those that may vanish.
      numbers[0] = 0;
      for (float& number : numbers)
        number = static_cast<float>(round_to(static_cast<double>(number), dtype));
      EXPECT_EQ(plain_errors(to, numbers, others.data()).known, 0);
    }
}

TEST(Operand, WholeNumbersOfAnyCount) {
  Random random(fresh_seed());
  for (const int64_t levels : {kInt8Levels, kInt16Levels})
    for (const size_t count : std::initializer_list<size_t>{1, 7, 8, 9, 31, 256, 300}) {
      SCOPED_TRACE(fmt::format("{} levels, {} numbers, seed {}", levels, count, fresh_seed()));
      Operand operand;
      operand.levels = levels;
      operand.scale = Scale::kBlock;
      operand.block = 32;
      std::vector<double> numbers(count);
      for (double& x : numbers) x = random.gaussian() * std::exp(random.gaussian() * 4);
      if (count > 8) {
        numbers[5] = std::numeric_limits<double>::quiet_NaN();
        numbers[6] = std::numeric_limits<double>::infinity();
      }
      // A block of nothing.
      if (count == 300) std::fill_n(numbers.begin() + 64, 32, 0.0);
      Rounded found(1, static_cast<int64_t>(count));
      found.add(operand, numbers, 0, 0);
      double deviation = 0;
      bool exact = true;
      for (size_t i = 0; i < count; ++i) {
        double largest = 0;
        for (size_t j = i / 32 * 32; j < std::min(count, i / 32 * 32 + 32); ++j)
          if (std::isfinite(numbers[j])) largest = std::max(largest, std::fabs(numbers[j]));
        const double step = largest / static_cast<double>(levels);
        double error = step > 0 ? step * std::nearbyint(numbers[i] / step) - numbers[i] : 0;
        if (!std::isfinite(error)) error = 0;
        EXPECT_EQ(found.errors.values[i], error) << numbers[i];
        EXPECT_EQ(found.variances.values[i], step * step / 12);
        exact = exact && error == 0;
        if (error != 0)
          deviation = std::max(deviation, std::fabs(error) / std::sqrt(step * step / 12));
      }
      EXPECT_EQ(found.exact, exact);
      EXPECT_NEAR(largest_deviation(found, 0), deviation, 1e-14 * deviation);
    }
}

}  // namespace
}  // namespace lockstep::parity
