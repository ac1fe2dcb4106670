// Monte-Carlo: the parts of attention, with scores, probabilities and channels of very different
// sizes, and with exponentials as engines have them.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parity/noise_test_support.h"

namespace lockstep::parity {
namespace {

// llama.cpp's single-precision polynomial, and the exponential of GPUs: a power of two.
float polynomial_exp(float x) {
  const float n = std::nearbyint(x * 0x1.715476p+0F);
  const float b = std::fma(-n, 0x1.7f7d1cp-20F, std::fma(-n, 0x1.62e4p-1F, x));
  const float u = b * b;
  const float j = std::fma(std::fma(std::fma(0x1.0e4020p-7F, b, 0x1.573e2ep-5F), u,
                                    std::fma(0x1.555e66p-3F, b, 0x1.fffdb6p-2F)),
                           u, 0x1.ffffecp-1F * b);
  return std::ldexp(1 + j, static_cast<int>(n));
}
float gpu_exp(float x, Random& random) {
  const float power = std::exp2(x * 1.4426950408889634F);
  return power * (1 + 0x1p-22F * static_cast<float>(random.uniform() - 0.5));
}

template <class T>
void check_attention() {
  const std::string_view type = type_name<T>();
  Worst of_scores(fmt::format("scores in {}", type));
  Worst of_probs(fmt::format("probabilities in {}", type));
  Worst of_mix(fmt::format("mix in {}", type));
  Random random(fresh_seed() + 4);
  const Arithmetic a = arithmetic(type);
  for (const int64_t n : {1, 7, 257, 4096})
    for (const std::string_view kind :
         {"gaussian", "large", "equal", "one dominates", "tiny rest", "wide"})
      for (const Order order : kManyOrders) {
        if (!tries(random, n > 1000 ? 12 : 2)) continue;
        const std::string where = fmt::format("{} {}, {}", n, kind, name(order));
        std::vector<double> scores;
        for (int64_t i = 0; i < n; ++i) {
          double s = random.gaussian();
          if (kind == "large") s *= 100;
          if (kind == "equal") s = 0.7;
          if (kind == "one dominates") s += i == 0 ? 9 : 0;
          if (kind == "tiny rest") s += i == n / 2 ? 17 : 0;
          if (kind == "wide") s = -90 * random.uniform();
          scores.push_back(static_cast<double>(T(s)));
        }
        std::vector<double> truth = scores;
        exec::reference::softmax(truth);
        std::vector<double> variance(scores.size());
        softmax_variance(scores, truth, std::vector<double>(scores.size()),
                         exec::reference::kNoSink, a, variance);
        const double largest = *std::ranges::max_element(scores);
        std::vector<double> probs;
        for (int way = 0; way < 3; ++way) {
          std::vector<T> powers;
          for (const double s : scores) {
            const auto x = static_cast<float>(static_cast<double>(T(s) - T(largest)));
            powers.push_back(T(way == 0   ? std::exp(x)
                               : way == 1 ? polynomial_exp(x)
                                          : gpu_exp(x, random)));
          }
          const T sum = add_up(std::span<const T>(powers), order);
          probs.clear();
          for (const T& p : powers) probs.push_back(static_cast<double>(p / sum));
          if (!std::is_same_v<T, double>)
            of_probs.see(compare_row(probs, truth, variance, false), where);
        }
        constexpr int64_t kWidth = 8;
        const op::Attention attention{
            .heads = 1, .kv_heads = 1, .head_size = kWidth, .value_size = kWidth, .scale = 0.25};
        Matrix v(n, kWidth);
        for (int64_t i = 0; i < n * kWidth; ++i) {
          const int64_t d = i % kWidth;
          double x = random.gaussian();
          if (d == 1) x = 0.3;
          if (d == 2) x = std::fabs(x);
          if (d == 3) x = i / kWidth == 0 ? 3000 : 0.1 * std::fabs(x);
          if (d == 4) x *= 1e-4;
          v.values[static_cast<size_t>(i)] = static_cast<double>(T(x));
        }
        std::vector<double> mix(kWidth), mixed(kWidth), spread(kWidth);
        mix_values(attention, probs, std::vector<double>(probs.size()), v, 0, a, mix.data(),
                   spread.data());
        for (int64_t d = 0; d < kWidth; ++d) {
          std::vector<T> terms;
          for (int64_t p = 0; p < n; ++p)
            terms.push_back(T(probs[static_cast<size_t>(p)]) * T(v.row(p)[d]));
          mixed[static_cast<size_t>(d)] =
              static_cast<double>(add_up(std::span<const T>(terms), order));
          // Each alone: they are of very different sizes.
          const auto at = static_cast<size_t>(d);
          of_mix.see(compare_row({&mixed[at], 1}, {&mix[at], 1}, {&spread[at], 1}, false),
                     fmt::format("{}, column {}", where, d));
        }
      }
  // Scores with channels that are far larger than the others.
  for (const int64_t n : {1, 7, 64, 256})
    for (const Outliers& outliers : kOutliers)
      for (const Order order : kManyOrders) {
        if (std::is_same_v<T, Half> && std::fabs(outliers.size) > 200) continue;
        const op::Attention attention{.heads = 1,
                                      .kv_heads = 1,
                                      .head_size = n,
                                      .value_size = n,
                                      .scale = 1 / std::sqrt(static_cast<double>(n))};
        constexpr int64_t kKeys = 16;
        Matrix q(1, n), k(kKeys, n);
        q.values = bulk(random, n, kBulks[static_cast<size_t>(random.below(5))]);
        put(outliers, q.values);
        for (int64_t p = 0; p < kKeys; ++p) {
          const std::vector<double> row = bulk(random, n, kBulks[static_cast<size_t>(p % 5)]);
          std::ranges::copy(row, k.row(p));
        }
        for (double& x : q.values) x = static_cast<double>(T(x));
        for (double& x : k.values) x = static_cast<double>(T(x));
        std::vector<double> truth(kKeys), variance(kKeys), out;
        score_keys(attention, q, 0, 0, k, key_columns(k), 0, 0, kKeys, a, truth, variance);
        for (int64_t p = 0; p < kKeys; ++p) {
          std::vector<T> terms;
          for (int64_t i = 0; i < n; ++i) terms.push_back(T(q.row(0)[i]) * T(k.row(p)[i]));
          out.push_back(
              static_cast<double>(T(attention.scale) * add_up(std::span<const T>(terms), order)));
        }
        of_scores.see(compare_row(out, truth, variance, true),
                      fmt::format("{} outliers {}, {}", n, outliers.name, name(order)));
      }
}

TEST(Summation, Attention) {
  check_attention<float>();
  check_attention<double>();
}
TEST(Summation, AttentionInSmallTypes) {
  check_attention<Bfloat>();
  check_attention<Half>();
}

}  // namespace
}  // namespace lockstep::parity
