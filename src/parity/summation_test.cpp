// Monte-Carlo: sums whose terms are of very different sizes, all alike, or too small for the type.
// No honest engine is condemned, whatever its order. LOCKSTEP_TABLE=1 prints the largest ratios.
#include "parity/summation.h"

#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parity/noise_test_support.h"

namespace lockstep::parity {
namespace {

template <class T>
T root(T x) {
  return T(std::sqrt(static_cast<double>(x)));
}

// Ways to the variance of a layer norm.
enum class Way { kTwoPasses, kOnePass, kWelford };

template <class T>
std::vector<double> normalize(const op::Norm& norm, const std::vector<double>& x,
                              const std::vector<float>& weight, Order order, Way way) {
  std::vector<T> in;
  for (const double v : x) in.push_back(T(v));
  const T n = T(static_cast<double>(x.size()));
  const auto sum = [&](const std::vector<T>& terms) {
    return add_up(std::span<const T>(terms), order);
  };
  T mean{};
  T variance{};
  std::vector<T> squares;
  if (norm.kind == op::Norm::Kind::kLayer) mean = sum(in) / n;
  if (way == Way::kOnePass) {
    for (const T& v : in) squares.push_back(v * v);
    variance = sum(squares) / n - mean * mean;
    if (static_cast<double>(variance) < 0) variance = T{};
  } else if (way == Way::kTwoPasses) {
    for (const T& v : in) squares.push_back((v - mean) * (v - mean));
    variance = sum(squares) / n;
  } else {
    T m{};
    T s{};
    double count = 0;
    for (const T& v : in) {
      const T delta = v - m;
      m = m + delta / T(++count);
      s = s + delta * (v - m);
    }
    mean = m;
    variance = s / n;
  }
  const T factor = T(1.0) / root(variance + T(norm.epsilon));
  std::vector<double> out;
  for (size_t i = 0; i < in.size(); ++i)
    out.push_back(static_cast<double>((in[i] - mean) * factor * T(weight[i])));
  return out;
}

template <class T>
void check_norms() {
  Worst worst(fmt::format("norms in {}", type_name<T>()));
  Random random(fresh_seed());
  for (const int64_t n : kLengths)
    for (const Outliers& outliers : kOutliers)
      for (const std::string_view kind : kBulks)
        for (const double mean : {0.0, 100.0}) {
          if (!tries(random, 4)) continue;
          const StoredWeight weight(random, 1, n, quant::Format::kF32);
          std::vector<float> w = weight.floats;
          for (float& v : w) v = static_cast<float>(static_cast<double>(T(v)));
          op::Weight stored = weight.weight;
          stored.data = std::as_bytes(std::span(w));
          std::vector<double> x = bulk(random, n, kind);
          put(outliers, x);
          double largest = 0;
          for (double& v : x) {
            v = static_cast<double>(T(v + mean));
            largest = std::max(largest, std::fabs(v));
          }
          // Squares that half precision cannot hold are no rounding.
          if (std::is_same_v<T, Half> && static_cast<double>(n) * largest * largest > 6e4) continue;
          for (const Order order : kManyOrders)
            for (const Way way : {Way::kTwoPasses, Way::kOnePass, Way::kWelford}) {
              const auto layer = way == Way::kTwoPasses ? random.below(2) == 0 : true;
              const op::Norm norm{
                  layer ? op::Norm::Kind::kLayer : op::Norm::Kind::kRms, n, 1e-5, stored, {}};
              if (way == Way::kWelford && order != Order::kSequential) continue;
              // In two bytes a running mean stands still after hundreds of numbers, where no two
              // passes do: that is a mistake, and of no engine.
              if (way == Way::kWelford && !std::is_floating_point_v<T> && n > 256) continue;
              worst.see(judge(norm, {row_matrix(x)}, 0, arithmetic(type_name<T>()),
                              normalize<T>(norm, x, w, order, way)),
                        fmt::format("{} of {}, mean {}, outliers {}, {}, way {}, {}", n, kind, mean,
                                    outliers.name, name(order), static_cast<int>(way),
                                    layer ? "layer" : "rms"));
            }
        }
}

TEST(Summation, NormsWithOutliers) {
  check_norms<float>();
  check_norms<double>();
  check_norms<Bfloat>();
  check_norms<Half>();
}

// Products with rows of weights, of which one may be like the input: all terms have one sign.
template <class T>
void check_products(bool fused) {
  Worst worst(fmt::format("products in {}{}", type_name<T>(), fused ? ", fused" : ""));
  Random random(fresh_seed() + 1);
  for (const int64_t n : kLengths)
    for (const Outliers& outliers : kOutliers)
      for (const std::string_view kind : kBulks)
        for (const std::string_view weights : kBulks) {
          if (!tries(random, 8)) continue;
          constexpr int64_t kOutputs = 8;
          std::vector<double> x = bulk(random, n, kind);
          put(outliers, x);
          for (double& v : x) v = static_cast<double>(T(v));
          std::vector<float> w;
          std::vector<float> bias;
          for (int64_t r = 0; r < kOutputs; ++r) {
            for (const double v : bulk(random, n, weights))
              w.push_back(static_cast<float>(static_cast<double>(T(v))));
            bias.push_back(static_cast<float>(static_cast<double>(T(100 * random.gaussian()))));
          }
          const quant::FormatInfo& f32 = quant::info(quant::Format::kF32);
          const op::Linear linear{
              {"w", &f32, kOutputs, n, std::as_bytes(std::span(w))},
              op::Weight{"b", &f32, 1, kOutputs, std::as_bytes(std::span(bias))}};
          for (const Order order : kManyOrders) {
            if (fused && order != Order::kSequential) continue;
            std::vector<double> out;
            for (size_t r = 0; r < kOutputs; ++r) {
              const auto at = [&](size_t i) { return w[r * x.size() + i]; };
              if (fused) {  // begins with the bias
                T sum = T(bias[r]);
                for (size_t i = 0; i < x.size(); ++i)
                  sum = T(std::fma(static_cast<double>(at(i)), x[i], static_cast<double>(sum)));
                out.push_back(static_cast<double>(sum));
                continue;
              }
              std::vector<T> terms;
              for (size_t i = 0; i < x.size(); ++i) terms.push_back(T(at(i)) * T(x[i]));
              out.push_back(
                  static_cast<double>(add_up(std::span<const T>(terms), order) + T(bias[r])));
            }
            bool finite = true;
            for (const double y : out) finite = finite && std::isfinite(y);
            if (!finite) continue;
            worst.see(judge(linear, {row_matrix(x)}, 0, arithmetic(type_name<T>()), out),
                      fmt::format("{} of {} by {}, outliers {}, {}", n, kind, weights,
                                  outliers.name, name(order)));
          }
        }
}

TEST(Summation, ProductsWithOutliers) {
  check_products<float>(false);
  check_products<float>(true);
  check_products<double>(false);
}
TEST(Summation, SmallProductsWithOutliers) {
  check_products<Bfloat>(false);
  check_products<Bfloat>(true);
  check_products<Half>(false);
  check_products<Half>(true);
}

// Single precision of a machine that knows no subnormal numbers.
struct Flushed {
  float value = 0;

  Flushed() = default;
  explicit Flushed(float x) : value(std::fabs(x) < 0x1p-126F ? 0 : x) {}
  explicit Flushed(double x) : Flushed(static_cast<float>(x)) {}
  explicit operator double() const { return static_cast<double>(value); }
  friend Flushed operator+(Flushed a, Flushed b) { return Flushed(a.value + b.value); }
  friend Flushed operator-(Flushed a, Flushed b) { return Flushed(a.value - b.value); }
  friend Flushed operator*(Flushed a, Flushed b) { return Flushed(a.value * b.value); }
};

// Factors, or only their products, are below the normal numbers of the type.
template <class T>
void check_vanishing(std::string_view type, std::span<const double> sizes) {
  Worst worst(fmt::format("tiny numbers in {}", type));
  Random random(fresh_seed() + 2);
  for (const int64_t n : kLengths)
    for (const double size : sizes)
      for (const double other : {1.0, 1e-3, size})
        for (const bool positive : {false, true})
          for (const Order order : kManyOrders) {
            if (!tries(random, 4)) continue;
            std::vector<double> x;
            std::vector<float> w;
            for (int64_t i = 0; i < n; ++i) x.push_back(random.gaussian() * other);
            for (int64_t i = 0; i < 4 * n; ++i)
              w.push_back(static_cast<float>(random.gaussian() * size));
            // The file and the trace hold numbers of the type.
            for (double& v : x) v = static_cast<double>(T(positive ? std::fabs(v) : v));
            if (std::is_same_v<T, Half>)
              for (float& v : w) v = half_to_float(float_to_half(v));
            for (float& v : w) v = positive ? std::fabs(v) : v;
            const op::Linear linear{
                {"w", &quant::info(quant::Format::kF32), 4, n, std::as_bytes(std::span(w))}, {}};
            std::vector<double> out;
            for (size_t r = 0; r < 4; ++r) {
              std::vector<T> terms;
              for (size_t i = 0; i < x.size(); ++i)
                terms.push_back(T(w[r * x.size() + i]) * T(x[i]));
              out.push_back(static_cast<double>(add_up(std::span<const T>(terms), order)));
            }
            const bool half = std::is_same_v<T, Half>;
            worst.see(judge(linear, {row_matrix(x)}, 0, arithmetic(half ? "f16" : "f32"), out),
                      fmt::format("{} of {} by {}, {}", n, other, size, name(order)));
          }
}

TEST(Summation, TinyNumbers) {
  check_vanishing<Half>("f16", std::vector{1e-4, 1e-5, 1e-6, 1e-7, 3e-8});
  check_vanishing<Flushed>("f32, flushed", std::vector{1e-20, 1e-30, 1e-36, 1e-38, 1e-40});
  check_vanishing<float>("f32, subnormal", std::vector{1e-20, 1e-36, 1e-40, 1e-44});
}

// Half-precision factors of weights that half precision barely holds.
TEST(Summation, WeightsThatVanishAsHalves) {
  Worst worst("weights rounded to halves");
  Random random(fresh_seed() + 3);
  for (const int64_t n : kLengths)
    for (const double size : {1e-4, 1e-6, 1e-7, 2e-8, 1e-9})
      for (const bool positive : {false, true}) {
        std::vector<float> w;
        std::vector<double> x;
        for (int64_t i = 0; i < 4 * n; ++i)
          w.push_back(static_cast<float>((positive ? random.uniform() : random.gaussian()) * size));
        for (int64_t i = 0; i < n; ++i)
          x.push_back(round_to(positive ? random.uniform() : random.gaussian(), DType::kF16));
        std::vector<double> out;
        for (size_t r = 0; r < 4; ++r) {
          float sum = 0;
          for (size_t i = 0; i < x.size(); ++i)
            sum += half_to_float(float_to_half(w[r * x.size() + i])) * static_cast<float>(x[i]);
          out.push_back(static_cast<double>(sum));
        }
        const op::Linear linear{
            {"w", &quant::info(quant::Format::kF32), 4, n, std::as_bytes(std::span(w))}, {}};
        const std::string where = fmt::format("{} of {}", n, size);
        Arithmetic a = arithmetic("f32", "f16");
        a.stored = unit(DType::kF32);
        worst.see(judge(linear, {row_matrix(x)}, 0, a, out), where);
        trace::Precision precision{"f32", "f32", "f32", "f16"};
        worst.see(judge(linear, {row_matrix(x)}, 0, arithmetic_of(precision, DType::kF32), out),
                  where + ", declared");
      }
}

}  // namespace
}  // namespace lockstep::parity
