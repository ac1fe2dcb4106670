// Monte-Carlo: correct kernels in every precision and order stay within the limits, and not far
// below them; inputs that were silently rounded do not. docs/numerics.md has the table that
// LOCKSTEP_TABLE=1 prints.
#include "parity/noise.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <numbers>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "base/test_effort.h"
#include "parity/noise_test_support.h"
#include "parity/own_error.h"
#include "parity/test_support.h"

namespace lockstep::parity {
namespace {

namespace reference = exec::reference;

bool prints() {
  return std::getenv("LOCKSTEP_TABLE") != nullptr;
}

template <class F>
void for_all_sums(F&& f) {
  uint64_t seed = 1;
  for (const int64_t n : {64, 255, 1024, 4096, 16384}) {
    if (n > 4096 && !runs_slow_tests() && !prints()) continue;
    for (const Shape shape : kShapes)
      for (const Order order : kOrders) f(n, shape, order, ++seed);
  }
}

struct Collected {
  std::vector<double> ratios;

  double median() {
    std::ranges::sort(ratios);
    return ratios[ratios.size() / 2];
  }
};

constexpr int64_t kRows = 24;

template <class T>
void check_sums(const std::string& name, const Arithmetic& a, quant::Format format) {
  Collected all;
  std::map<int64_t, std::map<Order, double>> table;
  for_all_sums([&](int64_t n, Shape shape, Order order, uint64_t seed) {
    if (a.levels > 0 && n % 256 != 0) return;
    SCOPED_TRACE(fmt::format("{}: length {}, {}, {}, seed {}", name, n,
                             kShapeNames[static_cast<int>(shape)], parity::name(order), seed));
    Random random(seed);
    const StoredWeight stored(random, kRows, n, format, shape == Shape::kPositive);
    std::vector<double> x = draw(random, n, shape);
    // Kernels of small types read what small types hold.
    for (double& v : x) v = static_cast<double>(T(v));
    std::vector<double> used = x;
    if (a.levels > 0)
      used = round_to_levels(std::span<const double>(x), a.levels,
                             static_cast<size_t>(activation_block(stored.weight, a.levels)));
    const op::Linear linear{stored.weight, {}};
    const OwnError own =
        judge(linear, {row_matrix(x)}, 0, a, multiply<T>(stored.weight, used, order));
    EXPECT_LE(own.ratio(), 1) << own.error << " expected " << own.expected << ", element "
                              << own.worst_ratio;
    all.ratios.push_back(own.ratio());
    if (shape == Shape::kGaussian) table[n][order] = own.error / (kRowLimit * own.expected);
  });
  EXPECT_GE(all.median(), 1.0 / 30) << name;
  if (!prints()) return;
  fmt::print("| {} |", name);
  for (const auto& [n, orders] : table) fmt::print(" {} |", n);
  fmt::print("\n");
  for (const Order order : kOrders) {
    fmt::print("| {} |", parity::name(order));
    for (auto& [n, orders] : table) fmt::print(" {:.3f} |", orders[order]);
    fmt::print("\n");
  }
}

TEST(Noise, SumsInSinglePrecision) {
  check_sums<float>("f32", arithmetic("f32"), quant::Format::kF32);
}
TEST(Noise, SumsInDoublePrecision) {
  check_sums<double>("f64", arithmetic("f64"), quant::Format::kF32);
}
TEST(Noise, SumsInHalfPrecision) {
  check_sums<Half>("f16", arithmetic("f16"), quant::Format::kF16);
}
TEST(Noise, SumsInBfloat) {
  check_sums<Bfloat>("bf16", arithmetic("bf16"), quant::Format::kBF16);
}
TEST(Noise, EightBitBlocksOf32) {
  check_sums<float>("int8 by 32", arithmetic("f32", "q8_0"), quant::Format::kQ8_0);
}
TEST(Noise, EightBitBlocksOf256) {
  check_sums<float>("int8 by 256", arithmetic("f32", "q8_k"), quant::Format::kQ4_K);
}
TEST(Noise, SixteenBitBlocksOf256) {
  check_sums<float>("int16 by 256", arithmetic("f32", "i16"), quant::Format::kQ4_K);
  check_sums<float>("int16 by 256, Q8_0", arithmetic("f32", "i16"), quant::Format::kQ8_0);
}

// Half and bfloat16 operands with single-precision sums: tensor cores.
TEST(Noise, SmallOperands) {
  for_all_sums([&](int64_t n, Shape shape, Order order, uint64_t seed) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(fmt::format("length {}, {}, {}, {}", n, kShapeNames[static_cast<int>(shape)],
                               parity::name(order), name(dtype)));
      Random random(seed);
      const StoredWeight stored(random, kRows, n, quant::Format::kF32, shape == Shape::kPositive);
      const std::vector<double> x = draw(random, n, shape);
      StoredWeight rounded = stored;
      for (float& w : rounded.floats)
        w = static_cast<float>(round_to(static_cast<double>(w), dtype));
      rounded.weight.data = std::as_bytes(std::span(rounded.floats));
      std::vector<double> used = x;
      for (double& v : used) v = round_to(v, dtype);
      const auto computed = multiply<float>(rounded.weight, used, order);
      const op::Linear linear{stored.weight, {}};
      Arithmetic a = arithmetic("f32", name(dtype));
      EXPECT_LE(judge(linear, {row_matrix(x)}, 0, a, computed).ratio(), 1);
      // Declared as single precision it is a defect. Where all terms are positive and there are
      // very many, one-by-one summation itself is as bad as half-precision inputs.
      const OwnError silent = judge(linear, {row_matrix(x)}, 0, arithmetic("f32"), computed);
      if (shape != Shape::kPositive || n <= 1024) {
        EXPECT_GT(silent.ratio(), 1);
      }
    }
  });
}

TEST(Noise, NormsOfAnySize) {
  uint64_t seed = 100;
  for (const int64_t n : {1, 7, 64, 255, 4096, 16384})
    for (const double mean : {0.0, 1.0, 100.0})
      for (const double size : {1e-4, 1.0, 1e3})
        for (const auto kind : {op::Norm::Kind::kRms, op::Norm::Kind::kLayer})
          for (const Order order : kOrders) {
            SCOPED_TRACE(fmt::format("length {}, mean {}, size {}, {}, seed {}", n, mean, size,
                                     parity::name(order), ++seed));
            Random random(seed);
            const StoredWeight weight(random, 1, n, quant::Format::kF32);
            std::vector<double> x = draw(random, n, Shape::kGaussian);
            for (double& v : x) v = round_to((v + mean) * size, DType::kF32);
            const op::Norm norm{kind, n, 1e-5, weight.weight, {}};
            std::vector<float> f(x.begin(), x.end());
            const auto count = static_cast<float>(n);
            const float m = kind == op::Norm::Kind::kLayer
                                ? add_up(std::span<const float>(f), order) / count
                                : 0;
            std::vector<float> squares;
            for (const float v : f) squares.push_back((v - m) * (v - m));
            float variance = add_up(std::span<const float>(squares), order) / count;
            const float factor = 1 / std::sqrt(variance + 1e-5F);
            std::vector<double> out;
            for (size_t i = 0; i < f.size(); ++i)
              out.push_back(static_cast<double>((f[i] - m) * factor * weight.floats[i]));
            const OwnError own = judge(norm, {row_matrix(x)}, 0, arithmetic("f32"), out);
            EXPECT_LE(own.ratio(), 1) << own.error << " " << own.expected << " " << own.worst_ratio;
          }
}

TEST(Noise, RotationsAtLargePositions) {
  uint64_t seed = 200;
  for (const int64_t position : {0, 1, 100, 5000, 131071, 1000000})
    for (const int64_t dims : {2, 8, 64, 128})
      for (const double base : {1e4, 5e5, 1e6}) {
        SCOPED_TRACE(fmt::format("position {}, dims {}, base {}", position, dims, base));
        Random random(++seed);
        op::Rope rope;
        rope.head_size = rope.dims = dims;
        rope.base = base;
        const std::vector<double> x = draw(random, 4 * dims, Shape::kGaussian);
        // Three ways to a frequency: a power, an exponential, and repeated multiplication.
        for (int way = 0; way < 3; ++way) {
          std::vector<double> out = x;
          const auto b = static_cast<float>(base);
          const float step = std::pow(b, -2.0F / static_cast<float>(dims));
          float running = 1;
          for (int64_t pair = 0; pair < dims / 2; ++pair, running *= step) {
            const float part = static_cast<float>(2 * pair) / static_cast<float>(dims);
            const float frequency = way == 0   ? 1 / std::pow(b, part)
                                    : way == 1 ? std::exp(-part * std::log(b))
                                               : running;
            const float angle = static_cast<float>(position) * frequency;
            const float c = std::cos(angle);
            const float s = std::sin(angle);
            for (int64_t head = 0; head < 4; ++head) {
              const auto i = static_cast<size_t>(head * dims + 2 * pair);
              const auto p = static_cast<float>(x[i]);
              const auto q = static_cast<float>(x[i + 1]);
              out[i] = static_cast<double>(p * c - q * s);
              out[i + 1] = static_cast<double>(p * s + q * c);
            }
          }
          const OwnError own = judge(rope, {row_matrix(x)}, position, arithmetic("f32"), out);
          EXPECT_LE(own.ratio(), 1) << "way " << way << ": " << own.error << " " << own.expected;
        }
      }
}

TEST(Noise, ActivationsOverTheirRange) {
  std::vector<double> x;
  for (double v = -120; v <= 120; v += 0.0371) x.push_back(round_to(v, DType::kF32));
  for (double v = 1e-30; v < 1; v *= 7) x.push_back(round_to(-v, DType::kF32));
  Random random(300);
  const std::vector<double> gate = draw(random, static_cast<int64_t>(x.size()), Shape::kHeavy);
  using Kind = op::Activate::Kind;
  for (const Kind kind : {Kind::kSilu, Kind::kGeluTanh, Kind::kGeluErf, Kind::kClampedSwish})
    for (const bool gated : {false, true}) {
      SCOPED_TRACE(fmt::format("kind {}, gated {}", static_cast<int>(kind), gated));
      std::vector<double> out;
      for (size_t i = 0; i < x.size(); ++i) {
        const auto v = static_cast<float>(x[i]);
        float y = v / (1 + std::exp(-v));
        if (kind == Kind::kGeluTanh)
          y = 0.5F * v * (1 + std::tanh(0.7978845608F * v * (1 + 0.044715F * v * v)));
        if (kind == Kind::kGeluErf) y = 0.5F * v * (1 + std::erf(v * 0.70710678F));
        auto factor = static_cast<float>(gate[i]);
        if (kind == Kind::kClampedSwish) {
          y = std::min(v, 7.0F) / (1 + std::exp(-1.702F * std::min(v, 7.0F)));
          factor = std::clamp(factor, -7.0F, 7.0F) + 1;
        }
        out.push_back(static_cast<double>(gated ? y * factor : y));
      }
      std::vector<Matrix> inputs = {row_matrix(x)};
      if (gated) inputs.push_back(row_matrix(gate));
      const OwnError own = judge(op::Activate{kind}, inputs, 0, arithmetic("f32"), out);
      EXPECT_LE(own.ratio(), 1) << own.error << " " << own.expected << ", " << own.recorded
                                << " for " << own.replayed;
    }
}

TEST(Noise, SoftmaxOfLargeScoresAndMix) {
  uint64_t seed = 400;
  for (const int64_t n : {1, 7, 257, 4096})
    for (const double size : {0.1, 1.0, 30.0, 1000.0})
      for (const Order order : kOrders) {
        SCOPED_TRACE(
            fmt::format("{} scores of {}, {}, seed {}", n, size, parity::name(order), ++seed));
        Random random(seed);
        const Arithmetic a = arithmetic("f32");
        std::vector<double> scores = draw(random, n, Shape::kGaussian);
        for (double& s : scores) s = round_to(s * size, DType::kF32);
        std::vector<double> truth = scores;
        // With a sink in every second case.
        const double sink =
            seed % 2 == 0 ? reference::kNoSink : round_to(random.gaussian() * size, DType::kF32);
        reference::softmax(truth, sink);
        std::vector<double> variance(scores.size());
        softmax_variance(scores, truth, std::vector<double>(scores.size()), sink, a, variance);
        const auto largest = static_cast<float>(std::max(*std::ranges::max_element(scores), sink));
        std::vector<float> powers;
        for (const double s : scores) powers.push_back(std::exp(static_cast<float>(s) - largest));
        if (seed % 2 == 1) powers.push_back(std::exp(static_cast<float>(sink) - largest));
        const float sum = add_up(std::span<const float>(powers), order);
        if (seed % 2 == 1) powers.pop_back();
        std::vector<double> probs;
        for (const float p : powers) probs.push_back(static_cast<double>(p / sum));
        EXPECT_LE(compare_row(probs, truth, variance, false).ratio(), 1);

        const op::Attention attention{
            .heads = 1, .kv_heads = 1, .head_size = 16, .value_size = 16, .scale = 0.25};
        Matrix v(n, 16);
        v.values = draw(random, n * 16, Shape::kHeavy);
        std::vector<double> mix(16), mixed(16), of_mix(16);
        mix_values(attention, probs, std::vector<double>(probs.size()), v, 0, a, mix.data(),
                   of_mix.data());
        for (size_t d = 0; d < 16; ++d) {
          std::vector<float> terms;
          for (int64_t p = 0; p < n; ++p)
            terms.push_back(static_cast<float>(probs[static_cast<size_t>(p)]) *
                            static_cast<float>(v.row(p)[d]));
          mixed[d] = static_cast<double>(add_up(std::span<const float>(terms), order));
        }
        EXPECT_LE(compare_row(mixed, mix, of_mix, false).ratio(), 1);
      }
}

TEST(OwnError, MasksMayBeLargeNumbers) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> truth = {1.5, -inf, -inf, -inf, -inf};
  const std::vector<double> variance(5, 1e-14);
  EXPECT_FALSE(
      compare_row(std::vector{1.5, -inf, -1e9, -65504.0, -1e4}, truth, variance, true).defect());
  const OwnError seen = compare_row(std::vector{1.5, -inf, 2.0, -inf, -inf}, truth, variance, true);
  EXPECT_TRUE(seen.defect());
  EXPECT_FALSE(seen.non_finite);
  EXPECT_EQ(seen.worst_index, 2);
  const OwnError hidden =
      compare_row(std::vector{-inf, -inf, -inf, -inf, -inf}, truth, variance, true);
  EXPECT_TRUE(hidden.defect());
  EXPECT_FALSE(hidden.non_finite);
  const OwnError broken =
      compare_row(std::vector{nan, -inf, -inf, -inf, -inf}, truth, variance, true);
  EXPECT_TRUE(broken.non_finite);
  // A row that sees nothing is 0/0: whatever an engine makes of it.
  EXPECT_FALSE(
      compare_row(std::vector{0.0, nan}, std::vector{nan, nan}, std::vector{0.0, 0.0}, false)
          .defect());
}

}  // namespace
}  // namespace lockstep::parity
