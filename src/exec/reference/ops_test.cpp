#include "exec/reference/ops.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <list>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "base/random.h"

namespace lockstep::exec::reference {
namespace {

constexpr int64_t kSizes[] = {1, 2, 7, 64, 255, 257};

class Ops : public ::testing::Test {
 protected:
  Ops() { RecordProperty("seed", std::to_string(seed_)); }

  Matrix matrix(int64_t rows, int64_t columns) {
    Matrix out(rows, columns);
    for (double& value : out.values) value = random_.gaussian();
    return out;
  }

  // An F32 weight; the bytes live as long as the fixture.
  op::Weight weight(int64_t rows, int64_t columns) {
    std::vector<float>& floats = storage_.emplace_back();
    for (int64_t i = 0; i < rows * columns; ++i)
      floats.push_back(static_cast<float>(random_.gaussian()));
    return {"w", &quant::info(quant::Format::kF32), rows, columns,
            std::as_bytes(std::span(floats))};
  }

  static double value(const op::Weight& w, int64_t row, int64_t column) {
    float out;
    std::memcpy(&out, w.row(row) + column * 4, 4);
    return static_cast<double>(out);
  }

  Matrix run(const op::What& what, std::vector<const Matrix*> inputs, int64_t width,
             int64_t first_position = 0, Scores* scores = nullptr) {
    const int64_t rows = inputs.empty() ? static_cast<int64_t>(tokens_.size()) : inputs[0]->rows;
    std::vector<int64_t> positions(static_cast<size_t>(rows));
    std::iota(positions.begin(), positions.end(), first_position);
    const Place place{tokens_, positions};
    return evaluate(what, inputs, width, place, 2, scores);
  }

  uint64_t seed_ = std::random_device{}();
  Random random_{seed_};
  std::list<std::vector<float>> storage_;
  std::vector<TokenId> tokens_;
};

TEST_F(Ops, EmbedTakesRowsByTokenOrPosition) {
  const op::Weight table = weight(9, 7);
  tokens_ = {8, 0, 3};
  const Matrix by_token = run(op::Embed{table, op::Embed::Index::kToken}, {}, 7);
  const Matrix by_position = run(op::Embed{table, op::Embed::Index::kPosition}, {}, 7, 5);
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t i = 0; i < 7; ++i) {
      EXPECT_EQ(by_token.row(t)[i], value(table, tokens_[static_cast<size_t>(t)], i));
      EXPECT_EQ(by_position.row(t)[i], value(table, 5 + t, i));
    }
}

TEST_F(Ops, NormsFollowTheirDefinitions) {
  for (const int64_t group : kSizes) {
    const Matrix x = matrix(3, 2 * group);
    op::Norm norm;
    norm.group = group;
    norm.epsilon = 1e-5;
    norm.weight = weight(1, group);
    const Matrix rms = run(norm, {&x}, 2 * group);
    norm.kind = op::Norm::Kind::kLayer;
    norm.bias = weight(1, group);
    const Matrix layer = run(norm, {&x}, 2 * group);
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t g = 0; g < 2; ++g) {
        long double sum = 0;
        long double squares = 0;
        for (int64_t i = 0; i < group; ++i) sum += x.row(t)[g * group + i];
        const long double mean = sum / group;
        long double spread = 0;
        for (int64_t i = 0; i < group; ++i) {
          const long double v = x.row(t)[g * group + i];
          squares += v * v;
          spread += (v - mean) * (v - mean);
        }
        for (int64_t i = 0; i < group; ++i) {
          const long double v = x.row(t)[g * group + i];
          const long double w = value(norm.weight, 0, i);
          const long double b = value(*norm.bias, 0, i);
          EXPECT_NEAR(rms.row(t)[g * group + i],
                      static_cast<double>(v / std::sqrt(squares / group + 1e-5L) * w), 1e-13);
          EXPECT_NEAR(layer.row(t)[g * group + i],
                      static_cast<double>((v - mean) / std::sqrt(spread / group + 1e-5L) * w + b),
                      1e-12);
        }
      }
  }
}

TEST_F(Ops, NormOfZerosIsZero) {
  const Matrix zeros(1, 7);
  op::Norm norm;
  norm.group = 7;
  norm.epsilon = 1e-6;
  norm.weight = weight(1, 7);
  for (const double y : run(norm, {&zeros}, 7).values) EXPECT_EQ(y, 0);
}

TEST_F(Ops, LinearIsRowsTimesInputPlusBias) {
  for (const int64_t columns : kSizes)
    for (const int64_t rows : {int64_t{1}, int64_t{7}, int64_t{257}}) {
      const Matrix x = matrix(3, columns);
      op::Linear linear{weight(rows, columns), {}};
      const Matrix plain = run(linear, {&x}, rows);
      linear.bias = weight(1, rows);
      const Matrix biased = run(linear, {&x}, rows);
      for (int64_t t = 0; t < 3; ++t)
        for (int64_t r = 0; r < rows; ++r) {
          long double sum = 0;
          long double size = 0;
          for (int64_t i = 0; i < columns; ++i) {
            const long double term =
                static_cast<long double>(value(linear.weight, r, i)) * x.row(t)[i];
            sum += term;
            size += std::fabs(term);
          }
          EXPECT_NEAR(plain.row(t)[r], static_cast<double>(sum), static_cast<double>(size) * 1e-15);
          EXPECT_EQ(biased.row(t)[r], plain.row(t)[r] + value(*linear.bias, 0, r));
        }
    }
}

TEST_F(Ops, SliceTakesConsecutiveColumns) {
  const Matrix x = matrix(2, 10);
  const Matrix y = run(op::Slice{3}, {&x}, 4);
  for (int64_t t = 0; t < 2; ++t)
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(y.row(t)[i], x.row(t)[3 + i]);
}

TEST_F(Ops, HeadPartsTakeAPartOfEachHeadAndAddAnother) {
  constexpr int64_t kHeads = 3, kTokens = 2;
  const Matrix x = matrix(kTokens, kHeads * 7), own = matrix(kTokens, kHeads * 2),
               shared = matrix(kTokens, 2);
  const Matrix part = run(op::HeadParts{kHeads, 3, 4}, {&x}, kHeads * 4);
  const Matrix with_own = run(op::HeadParts{kHeads, 1, 5}, {&x, &own}, kHeads * 7);
  const Matrix with_shared = run(op::HeadParts{kHeads, 0, 5}, {&x, &shared}, kHeads * 7);
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(part.row(t)[head * 4 + i], x.row(t)[head * 7 + 3 + i]);
      for (int64_t i = 0; i < 5; ++i) {
        EXPECT_EQ(with_own.row(t)[head * 7 + i], x.row(t)[head * 7 + 1 + i]);
        EXPECT_EQ(with_shared.row(t)[head * 7 + i], x.row(t)[head * 7 + i]);
      }
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_EQ(with_own.row(t)[head * 7 + 5 + i], own.row(t)[head * 2 + i]);
        EXPECT_EQ(with_shared.row(t)[head * 7 + 5 + i], shared.row(t)[i]);
      }
    }
}

TEST_F(Ops, RopeTurnsPairsOfEachHeadByPositionTimesFrequency) {
  for (const auto pairing : {op::Rope::Pairing::kAdjacent, op::Rope::Pairing::kHalves}) {
    op::Rope rope;
    rope.head_size = 10;
    rope.dims = 6;
    rope.pairing = pairing;
    rope.base = 500;
    rope.magnitude = 1.25;
    const Matrix x = matrix(3, 20);
    const Matrix y = run(rope, {&x}, 20, 40);
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t head = 0; head < 20; head += 10) {
        for (int64_t i = 0; i < 3; ++i) {
          const bool adjacent = pairing == op::Rope::Pairing::kAdjacent;
          const int64_t a = head + (adjacent ? 2 * i : i);
          const int64_t b = head + (adjacent ? 2 * i + 1 : i + 3);
          const double angle =
              static_cast<double>(40 + t) * std::pow(500.0, -static_cast<double>(i) / 3);
          const double* in = x.row(t);
          EXPECT_NEAR(y.row(t)[a], 1.25 * (in[a] * std::cos(angle) - in[b] * std::sin(angle)),
                      1e-12);
          EXPECT_NEAR(y.row(t)[b], 1.25 * (in[a] * std::sin(angle) + in[b] * std::cos(angle)),
                      1e-12);
        }
        for (int64_t i = 6; i < 10; ++i) EXPECT_EQ(y.row(t)[head + i], x.row(t)[head + i]);
      }
  }
}

TEST_F(Ops, AttentionIsSoftmaxOverWhatEachTokenSees) {
  const std::vector<float> sinks = {0.5F, -2, 3, 0, -700, 1.25F};
  for (const int64_t window : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{100}})
    for (const double cap : {0.0, 2.0, -1.0}) {  // -1: none, but sinks
      op::Attention attention{.heads = 6,
                              .kv_heads = 2,
                              .head_size = 5,
                              .value_size = 3,
                              .scale = 0.7,
                              .soft_cap = std::max(cap, 0.0),
                              .window = window};
      if (cap < 0)
        attention.sinks = op::Weight{.name = "sinks",
                                     .format = &quant::info(quant::Format::kF32),
                                     .rows = 1,
                                     .columns = 6,
                                     .data = std::as_bytes(std::span(sinks))};
      const int64_t first = 4;
      const int64_t tokens = 3;
      const Matrix q = matrix(tokens, 30);
      const Matrix k = matrix(first + tokens, 10);
      const Matrix v = matrix(first + tokens, 6);
      Scores scores;
      const Matrix mix = run(attention, {&q, &k, &v}, 18, first, &scores);
      const Matrix without_scores = run(attention, {&q, &k, &v}, 18, first);
      EXPECT_EQ(mix.values, without_scores.values);
      for (int64_t head = 0; head < 6; ++head)
        for (int64_t t = 0; t < tokens; ++t) {
          std::vector<double> expected;
          double sum =
              cap < 0 ? std::exp(static_cast<double>(sinks[static_cast<size_t>(head)])) : 0;
          for (int64_t p = 0; p < first + tokens; ++p) {
            double score = -std::numeric_limits<double>::infinity();
            const bool seen = p <= first + t && (window == 0 || p > first + t - window);
            if (seen) {
              score = 0;
              for (int64_t i = 0; i < 5; ++i)
                score += 0.7 * q.row(t)[head * 5 + i] * k.row(p)[head / 3 * 5 + i];
              if (cap > 0) score = cap * std::tanh(score / cap);
            }
            const double actual = scores.scores.row(head * tokens + t)[p];
            if (seen) {
              EXPECT_NEAR(actual, score, 1e-13);
            } else {
              EXPECT_EQ(actual, score);
            }
            expected.push_back(std::exp(score));
            sum += expected.back();
          }
          for (int64_t p = 0; p < first + tokens; ++p)
            EXPECT_NEAR(scores.probs.row(head * tokens + t)[p],
                        expected[static_cast<size_t>(p)] / sum, 1e-14);
          for (int64_t d = 0; d < 3; ++d) {
            double y = 0;
            for (int64_t p = 0; p < first + tokens; ++p)
              y += expected[static_cast<size_t>(p)] / sum * v.row(p)[head / 3 * 3 + d];
            EXPECT_NEAR(mix.row(t)[head * 3 + d], y, 1e-13);
          }
        }
    }
}

TEST_F(Ops, HugeScoresDoNotOverflow) {
  const op::Attention attention{.heads = 1,
                                .kv_heads = 1,
                                .head_size = 1,
                                .value_size = 1,
                                .scale = 1e6,
                                .soft_cap = 0,
                                .window = 0};
  Matrix q(1, 1);
  q.values = {1};
  Matrix k(2, 1);
  k.values = {1, 2};
  Matrix v(2, 1);
  v.values = {5, 6};
  EXPECT_EQ(run(attention, {&q, &k, &v}, 1, 1).values[0], 6);
}

TEST_F(Ops, ASinkThatIsFarAboveAllScoresLeavesNothing) {
  const std::vector<float> sink = {1e30F};
  op::Attention attention{.heads = 1, .kv_heads = 1, .head_size = 1, .value_size = 1};
  attention.sinks = op::Weight{.name = "sink",
                               .format = &quant::info(quant::Format::kF32),
                               .rows = 1,
                               .columns = 1,
                               .data = std::as_bytes(std::span(sink))};
  const Matrix q = matrix(1, 1);
  const Matrix k = matrix(3, 1);
  const Matrix v = matrix(3, 1);
  EXPECT_EQ(run(attention, {&q, &k, &v}, 1, 2).values[0], 0);
}

TEST_F(Ops, TheClampedSwishHasItsLimits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Matrix gate(1, 6), up(1, 6);
  gate.values = {1, 7, 9, -800, kInfinity, 2};
  up.values = {0, -1, 9, -9, 0.5, -kInfinity};
  const op::Activate what{op::Activate::Kind::kClampedSwish};
  const auto f = [](double x) { return x * (1 / (1 + std::exp(-1.702 * x))); };
  const std::vector<double> alone = {f(1), f(7), f(7), 0, f(7), f(2)};
  const std::vector<double> factors = {1, 0, 8, -6, 1.5, -6};
  const auto single = run(what, {&gate}, 6).values;
  const auto both = run(what, {&gate, &up}, 6).values;
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(single[i], alone[i], 1e-14);
    EXPECT_NEAR(both[i], alone[i] * factors[i], 1e-13);
  }
  gate.values[0] = up.values[1] = std::numeric_limits<double>::quiet_NaN();
  const auto broken = run(what, {&gate, &up}, 6).values;
  EXPECT_TRUE(std::isnan(broken[0]));
  EXPECT_TRUE(std::isnan(broken[1]));
}

TEST_F(Ops, ActivationsHaveTheirKnownValues) {
  Matrix x(1, 5);
  x.values = {0, 1, -1, 40, -800};
  using Kind = op::Activate::Kind;
  const auto silu = run(op::Activate{Kind::kSilu}, {&x}, 5).values;
  const auto tanh = run(op::Activate{Kind::kGeluTanh}, {&x}, 5).values;
  const auto erf = run(op::Activate{Kind::kGeluErf}, {&x}, 5).values;
  // From tables of the logistic function and the normal distribution.
  EXPECT_NEAR(silu[1], 0.7310585786300049, 1e-15);
  EXPECT_NEAR(silu[2], -0.2689414213699951, 1e-15);
  EXPECT_NEAR(tanh[1], 0.8411919906082768, 1e-12);
  EXPECT_NEAR(erf[1], 0.8413447460685429, 1e-15);
  EXPECT_NEAR(erf[2], -0.15865525393145707, 1e-15);
  for (const auto& y : {silu, tanh, erf}) {
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[3], 40);
    EXPECT_EQ(y[4], 0);
  }
  const Matrix gate = matrix(1, 5);
  const auto gated = run(op::Activate{Kind::kSilu}, {&x, &gate}, 5).values;
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(gated[i], silu[i] * gate.values[i]);
}

TEST_F(Ops, SoftCap) {
  Matrix x = matrix(1, 7);
  x.values = {0, -0.0, 1e-300, 30, -3000, 7, std::numeric_limits<double>::infinity()};
  const auto y = run(op::SoftCap{30}, {&x}, 7).values;
  EXPECT_EQ(y[0], 0);
  EXPECT_TRUE(std::signbit(y[1]));
  EXPECT_NEAR(y[2] / 1e-300, 1, 1e-15);
  EXPECT_EQ(y[3], 30 * std::tanh(1.0));
  EXPECT_EQ(y[4], -30);
  EXPECT_EQ(y[5], 30 * std::tanh(7.0 / 30));
  EXPECT_EQ(y[6], 30);
}

TEST_F(Ops, AddAndScale) {
  const Matrix x = matrix(2, 7);
  const Matrix y = matrix(2, 7);
  const Matrix sum = run(op::Add{}, {&x, &y}, 7);
  const Matrix scaled = run(op::Scale{-2.5}, {&x}, 7);
  for (size_t i = 0; i < sum.values.size(); ++i) {
    EXPECT_EQ(sum.values[i], x.values[i] + y.values[i]);
    EXPECT_EQ(scaled.values[i], -2.5 * x.values[i]);
  }
}

TEST_F(Ops, ChooseTakesTheLargestAndOfEqualOnesTheFirst) {
  Matrix router(3, 5);
  router.values = {0, 3, 1, 3, 2, /**/ 1, 1, 1, 1, 1, /**/ -4, std::nan(""), -3, -9, -1e300};
  EXPECT_EQ(run(op::Choose{}, {&router}, 3).values,
            (std::vector<double>{1, 3, 4, 0, 1, 2, 2, 0, 3}));
  // Scores that vanish still have an order, and a row without a number still has a choice.
  router.values = {0,
                   -900,
                   -800,
                   -1e5,
                   -1e4,
                   /**/ std::nan(""),
                   std::nan(""),
                   std::nan(""),
                   std::nan(""),
                   std::nan(""),
                   /**/ 0,
                   0,
                   0,
                   0,
                   0};
  EXPECT_EQ(run(op::Choose{}, {&router}, 4).values,
            (std::vector<double>{0, 2, 1, 4, 0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST_F(Ops, ChooseAddsItsBiasAndLooksAtGroups) {
  Matrix router(1, 6);
  router.values = {0, 0, 5, -5, 1, 1};
  const float numbers[] = {0, 0.45f, 0, 0, 0, 0};
  op::Choose choose;
  choose.scoring = op::Scoring::kSigmoid;
  EXPECT_EQ(run(choose, {&router}, 2).values, (std::vector<double>{2, 4}));
  // Sigmoids: 0.5 0.5 | 0.993 0.007 | 0.731 0.731. The third group has the largest sum.
  choose.groups = 3;
  EXPECT_EQ(run(choose, {&router}, 2).values, (std::vector<double>{4, 5}));
  // The second has the largest score.
  choose.group_scores = 1;
  EXPECT_EQ(run(choose, {&router}, 2).values, (std::vector<double>{2, 3}));
  choose.group_scores = 2;
  choose.bias = op::Weight{"bias", &quant::info(quant::Format::kF32), 1, 6,
                           std::as_bytes(std::span(numbers))};
  choose.groups_used = 2;
  EXPECT_EQ(run(choose, {&router}, 3).values, (std::vector<double>{1, 4, 5}));
}

TEST_F(Ops, WeighScoresTheChosen) {
  Matrix router(1, 3), choice(1, 2);
  router.values = {1, 0.5, -2};
  choice.values = {2, 0};
  const double sum = std::exp(1) + std::exp(0.5) + std::exp(-2);
  const auto expect = [&](const op::Weigh& weigh, double first, double second) {
    const Matrix out = run(weigh, {&router, &choice}, 2);
    EXPECT_NEAR(out.values[0], first, 1e-15);
    EXPECT_NEAR(out.values[1], second, 1e-15);
  };
  expect({op::Scoring::kSoftmax, false, 1}, std::exp(-2) / sum, std::exp(1) / sum);
  expect({op::Scoring::kSoftmax, true, 3}, 3 / (1 + std::exp(3)), 3 / (1 + std::exp(-3)));
  const double a = 1 / (1 + std::exp(2)), b = 1 / (1 + std::exp(-1));
  expect({op::Scoring::kSigmoid, false, 0.5}, a / 2, b / 2);
  expect({op::Scoring::kSigmoid, true, 1}, a / (a + b), b / (a + b));
  // A recorded choice may hold anything.
  choice.values = {3, 0};
  EXPECT_TRUE(std::isnan(run(op::Weigh{}, {&router, &choice}, 2).values[0]));
}

TEST_F(Ops, ExpertLinearIsALinearByEachChosenExpert) {
  for (const int64_t size : kSizes)
    for (const bool own : {false, true}) {
      const int64_t experts = 5, used = 3, rows = 4, tokens = 6;
      op::ExpertLinear all{experts, weight(experts * rows, size), weight(experts, rows)};
      const Matrix x = matrix(tokens, own ? used * size : size);
      Matrix choice(tokens, used);
      for (double& number : choice.values) number = static_cast<double>(random_.below(experts));
      choice.values[1] = 5;
      choice.values[2] = 0.5;
      const Matrix out = run(all, {&x, &choice}, used * rows);
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t slot = 0; slot < used; ++slot)
          for (int64_t r = 0; r < rows; ++r) {
            const double actual = out.row(t)[slot * rows + r];
            const double chosen = choice.row(t)[slot];
            if (t == 0 && slot > 0) {
              EXPECT_TRUE(std::isnan(actual));
              continue;
            }
            const auto expert = static_cast<int64_t>(chosen);
            double expected = value(*all.bias, expert, r);
            for (int64_t i = 0; i < size; ++i)
              expected +=
                  value(all.weight, expert * rows + r, i) * x.row(t)[(own ? slot * size : 0) + i];
            EXPECT_NEAR(actual, expected, 1e-12 * static_cast<double>(size));
          }
    }
}

TEST_F(Ops, MixExpertsAndGateAreWhatTheySay) {
  for (const int64_t width : kSizes) {
    const Matrix weights = matrix(3, 4), x = matrix(3, 4 * width), gate = matrix(3, 1);
    const Matrix mix = run(op::MixExperts{}, {&weights, &x}, width);
    const Matrix gated = run(op::Gate{}, {&mix, &gate}, width);
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t i = 0; i < width; ++i) {
        double sum = 0;
        for (int64_t slot = 0; slot < 4; ++slot)
          sum += weights.row(t)[slot] * x.row(t)[slot * width + i];
        EXPECT_NEAR(mix.row(t)[i], sum, 1e-13);
        EXPECT_NEAR(gated.row(t)[i], sum / (1 + std::exp(-gate.row(t)[0])), 1e-13);
      }
  }
}

}  // namespace
}  // namespace lockstep::exec::reference
