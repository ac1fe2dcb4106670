#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "exec/f64/products.h"
#include "parity/noise_expert_linear.h"
#include "parity/noise_linear.h"
#include "parity/noise_test_support.h"

namespace lockstep::parity {
namespace {

// Names of arithmetic: compute and activations.
constexpr std::pair<const char*, const char*> kArithmetics[] = {
    {"f32", "f32"},  {"f32", "f16"},       {"f32", "bf16"},
    {"f32", "i16"},  {"f32", "by_weight"}, {"f64", "f64"},
    {"f32", "tf32"}, {"f32", "e4m3:row"},  {"f32", "int8:block32"}};

// What another product left behind.
LinearNoise::Evaluated used_room() {
  LinearNoise::Evaluated out{Matrix(40, 50), Matrix(3, 70), false};
  std::ranges::fill(out.value.values, std::nan(""));
  std::ranges::fill(out.at_least.values, std::nan(""));
  return out;
}

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
      const LinearNoise::Evaluated evaluated =
          noise.evaluate(exec::f64::cpu_products(), &actual, used_room());
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

// Products of experts are judged as products are: with the same numbers, put in the tokens' order.
TEST(NoiseAtLeast, ExpertsAreAsTheirOwnProducts) {
  Random random(fresh_seed());
  for (const auto& [compute, activations] : kArithmetics)
    for (const bool own_inputs : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {}, seed {}", compute, activations, fresh_seed()));
      constexpr int64_t kExperts = 5, kUsed = 3, kRows = 37, kColumns = 64, kTokens = 11;
      const Arithmetic a = arithmetic(compute, activations);
      const StoredWeight stored(random, kExperts * kRows, kColumns, quant::Format::kQ8_0);
      const StoredWeight bias(random, kExperts, kRows, quant::Format::kF32);
      const op::ExpertLinear all{kExperts, stored.weight, bias.weight};
      Matrix x(kTokens, own_inputs ? kUsed * kColumns : kColumns);
      for (double& number : x.values)
        number = static_cast<double>(static_cast<float>(random.gaussian()));
      Matrix choice(kTokens, kUsed);
      for (int64_t t = 0; t < kTokens; ++t)  // different ones; nobody takes the last expert
        for (int64_t slot = 0; slot < kUsed; ++slot)
          choice.row(t)[slot] = static_cast<double>((t * 3 + slot) % (kExperts - 1));
      const Matrix* const inputs[] = {&x, &choice};
      const Matrix out = exec::reference::evaluate(all, inputs, kUsed * kRows, {}, 1);
      const Matrix exact = rounding_variance(all, inputs, out, {}, a, 1);
      const ExpertNoise noise(all, x, choice, a, 2);
      const Matrix least = noise.at_least(out, exec::f64::cpu_products());
      for (size_t i = 0; i < out.values.size(); ++i) ASSERT_LE(least.values[i], exact.values[i]);

      Matrix some(kTokens, kUsed * kRows);
      const std::vector<int64_t> rows = {9, 0, 4};
      noise.find_rows(rows, out, some);
      for (int64_t t = 0; t < kTokens; ++t)
        for (int64_t i = 0; i < out.columns; ++i)
          ASSERT_EQ(some.row(t)[i], t == 0 || t == 4 || t == 9 ? exact.row(t)[i] : 0);
      std::vector<LinearNoise::Element> elements;
      for (int i = 0; i < 40; ++i)
        elements.push_back({random.below(kTokens), random.below(out.columns)});
      Matrix few(kTokens, kUsed * kRows);
      noise.find(elements, out, few);
      for (const auto& [row, column] : elements)
        EXPECT_EQ(few.row(row)[column], exact.row(row)[column]);

      if (a.compute < kSingle) continue;
      const LinearNoise::Evaluated evaluated =
          noise.evaluate(exec::f64::cpu_products(), &out, used_room());
      for (size_t i = 0; i < out.values.size(); ++i) {
        EXPECT_NEAR(evaluated.value.values[i], out.values[i], 1e-13);
        EXPECT_LE(evaluated.at_least.values[i], exact.values[i]);
      }
      // An expert that does not exist has no result.
      choice.row(2)[1] = kExperts;
      const ExpertNoise lacking(all, x, choice, a, 1);
      const Matrix value = lacking.evaluate(exec::f64::cpu_products(), &out, used_room()).value;
      EXPECT_TRUE(std::isnan(value.row(2)[kRows]));
      EXPECT_FALSE(std::isnan(value.row(2)[0]));
    }
}

}  // namespace
}  // namespace lockstep::parity
