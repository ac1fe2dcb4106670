#include <cmath>

#include <gtest/gtest.h>

#include "exec/f64/products.h"
#include "parity/noise_linear.h"
#include "parity/noise_test_support.h"

namespace lockstep::parity {
namespace {

// Names of arithmetic: compute and activations.
constexpr std::pair<const char*, const char*> kArithmetics[] = {
    {"f32", "f32"},  {"f32", "f16"},       {"f32", "bf16"},
    {"f32", "i16"},  {"f32", "by_weight"}, {"f64", "f64"},
    {"f32", "tf32"}, {"f32", "e4m3:row"},  {"f32", "int8:block32"}};

TEST(NoiseAtLeast, IsNeverMoreThanTheNoiseAndUsuallyNearlyAll) {
  Random random(fresh_seed());
  for (const auto& [compute, activations] : kArithmetics) {
    SCOPED_TRACE(fmt::format("{}, {}, seed {}", compute, activations, fresh_seed()));
    const Arithmetic a = arithmetic(compute, activations);
    for (const quant::Format format :
         {quant::Format::kF32, quant::Format::kF16, quant::Format::kQ4_K})
      for (const int64_t columns : {256, 1024})
        for (const double size : {1.0, 1e-25, 1e25}) {
          const StoredWeight stored(random, 37, columns, format);
          Matrix x(5, columns);
          for (double& number : x.values)
            number = static_cast<double>(static_cast<float>(size * random.gaussian()));
          // A row of zeros, and one with a number that stands out.
          std::fill_n(x.row(1), columns, 0.0);
          x.row(2)[7] *= 1000;
          const op::Linear linear{stored.weight, {}};
          const LinearNoise noise(linear, x, a, 2);
          const Matrix out = exec::f64::multiply(stored.weight, x, 2);
          const Matrix exact = noise.all(out);
          const Matrix least = noise.at_least(out);
          double share = 0;
          for (int64_t t = 0; t < x.rows; ++t)
            for (int64_t r = 0; r < out.columns; ++r) {
              ASSERT_LE(least.row(t)[r], exact.row(t)[r]) << "row " << t << ", element " << r;
              if (t != 1) share += least.row(t)[r] / exact.row(t)[r];
            }
          share /= static_cast<double>(4 * out.columns);
          // Where a scale is shared by a row, its own rounding is not part of what is estimated.
          EXPECT_GT(share, size == 1 ? 0.8 : 0.0) << columns << " columns, size " << size;
        }
  }
}

TEST(NoiseAtLeast, WhatIsMeantIsLookedForWhereItCounts) {
  Random random(fresh_seed());
  for (const auto& [compute, activations] : kArithmetics)
    for (const int64_t columns : {32, 257, 1024}) {
      const Arithmetic a = arithmetic(compute, activations);
      if (a.compute < kSingle) continue;  // our own reference, which is not judged by this
      SCOPED_TRACE(
          fmt::format("{}, {}, {} columns, seed {}", compute, activations, columns, fresh_seed()));
      const StoredWeight stored(random, 70, columns, quant::Format::kF32);
      Matrix x(9, columns);
      for (double& number : x.values)
        number = static_cast<double>(static_cast<float>(random.gaussian()));
      const op::Linear linear{stored.weight, {}};
      const LinearNoise noise(linear, x, a, 2);
      const Matrix out = exec::f64::multiply(stored.weight, x, 2);
      const Matrix exact = noise.all(out);
      const Matrix least = noise.at_least(out);
      // The last columns of a vocabulary may not have been recorded.
      const int64_t width = 70 - random.below(40);
      Matrix actual(out.rows, width);
      for (int64_t t = 0; t < out.rows; ++t)
        for (int64_t r = 0; r < width; ++r)
          actual.row(t)[r] = out.row(t)[r] + random.gaussian() * 2 * std::sqrt(exact.row(t)[r]);
      actual.row(3)[width / 2] = std::nan("");
      const LinearNoise::Evaluated evaluated = noise.evaluate(exec::f64::cpu_products(), &actual);
      const double size = std::sqrt(static_cast<double>(columns));  // of a product
      for (int64_t t = 0; t < out.rows; ++t)
        for (int64_t r = 0; r < out.columns; ++r) {
          ASSERT_NEAR(evaluated.value.row(t)[r], out.row(t)[r], 1e-13 * size);
          const double all = least.row(t)[r];
          ASSERT_LE(evaluated.at_least.row(t)[r], exact.row(t)[r]);
          ASSERT_LE(evaluated.at_least.row(t)[r], all * (1 + 1e-3));
          if (r < width && std::pow(actual.row(t)[r] - out.row(t)[r], 2) > 4 * all) {
            ASSERT_NEAR(evaluated.at_least.row(t)[r], all, 1e-3 * all);
          }
        }
    }
}

TEST(NoiseAtLeast, SomeElementsAreAsAllAre) {
  Random random(fresh_seed());
  const StoredWeight stored(random, 70, 257, quant::Format::kF32);
  Matrix x(6, 257);
  for (double& number : x.values) number = random.gaussian();
  const op::Linear linear{stored.weight, {}};
  const LinearNoise noise(linear, x, arithmetic("f32"), 2);
  const Matrix out = exec::f64::multiply(stored.weight, x, 1);
  const Matrix all = noise.all(out);
  Matrix some(out.rows, out.columns);
  std::vector<LinearNoise::Element> elements;
  for (int i = 0; i < 50; ++i) elements.push_back({random.below(6), random.below(70)});
  noise.find(elements, out, some);
  for (const auto& [row, column] : elements) EXPECT_EQ(some.row(row)[column], all.row(row)[column]);
}

}  // namespace
}  // namespace lockstep::parity
