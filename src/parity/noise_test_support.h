// Test-only: numbers, weights and kernels for Monte-Carlo tests of what rounding does.
#pragma once

#include <array>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "parity/noise.h"
#include "parity/own_error.h"
#include "parity/test_support.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace lockstep::parity {

enum class Shape { kGaussian, kHeavy, kPositive, kHuge };
inline constexpr std::array kShapes = {Shape::kGaussian, Shape::kHeavy, Shape::kPositive,
                                       Shape::kHuge};
inline constexpr std::string_view kShapeNames[] = {"Gaussian", "heavy-tailed", "all positive",
                                                   "one huge element"};

inline std::vector<double> draw(Random& random, int64_t count, Shape shape) {
  std::vector<double> out(static_cast<size_t>(count));
  for (double& x : out) {
    x = random.gaussian();
    if (shape == Shape::kHeavy) x /= std::sqrt(random.uniform() + 1e-4);  // a tail like Student's
    if (shape == Shape::kPositive) x = std::fabs(x);
    x = round_to(x, DType::kF32);
  }
  if (shape == Shape::kHuge) out[static_cast<size_t>(random.below(count))] = 1000;
  return out;
}

// A matrix of the file, in single precision or encoded.
struct StoredWeight {
  std::vector<float> floats;
  std::vector<std::byte> bytes;
  op::Weight weight;

  StoredWeight(Random& random, int64_t rows, int64_t columns, quant::Format format,
               bool positive = false) {
    for (int64_t i = 0; i < rows * columns; ++i) {
      const double x = random.gaussian() / std::sqrt(static_cast<double>(columns));
      floats.push_back(static_cast<float>(positive ? std::fabs(x) : x));
    }
    const quant::FormatInfo& info = quant::info(format);
    bytes.resize(static_cast<size_t>(quant::size_bytes(info, columns) * rows));
    for (int64_t r = 0; r < rows; ++r)
      quant::encode(format, floats.data() + r * columns, columns,
                    bytes.data() + r * quant::size_bytes(info, columns));
    weight = {"weight", &info, rows, columns, bytes};
  }
};

inline Arithmetic arithmetic(std::string_view compute, std::string_view activations = "") {
  trace::Precision precision;
  precision.compute = std::string(compute);
  precision.activations = std::string(activations.empty() ? compute : activations);
  const auto dtype = trace::find_dtype(*precision.activations);
  return arithmetic_of(precision, dtype.value_or(DType::kF32));
}

inline Matrix row_matrix(const std::vector<double>& x) {
  Matrix out(1, static_cast<int64_t>(x.size()));
  out.values = x;
  return out;
}

inline OwnError judge(const op::What& what, const std::vector<Matrix>& inputs, int64_t position,
                      const Arithmetic& a, const std::vector<double>& computed) {
  std::vector<const Matrix*> pointers;
  for (const Matrix& m : inputs) pointers.push_back(&m);
  const int32_t token = 0;
  const Place place{{&token, 1}, {&position, 1}};
  const Matrix truth =
      exec::reference::evaluate(what, pointers, static_cast<int64_t>(computed.size()), place, 1);
  const Matrix variance = rounding_variance(what, pointers, truth, place, a, 1);
  return compare_row(computed, truth.values, variance.values, false);
}

// weight · x in the arithmetic T.
template <class T>
std::vector<double> multiply(const op::Weight& weight, const std::vector<double>& x, Order order) {
  const Matrix exact_row = row_matrix(x);
  std::vector<double> out;
  std::vector<T> terms(x.size());
  std::vector<double> w(x.size());
  for (int64_t r = 0; r < weight.rows; ++r) {
    // Decoded by the reference: row r times unit vectors would be slow, so by the formats.
    std::vector<float> floats(x.size());
    quant::decode(weight.format->format(), weight.row(r), weight.columns, floats.data());
    for (size_t i = 0; i < x.size(); ++i) terms[i] = T(floats[i]) * T(x[i]);
    out.push_back(static_cast<double>(add_up(std::span<const T>(terms), order)));
  }
  return out;
}

// Fresh numbers every time; LOCKSTEP_SEED repeats a run.
inline uint64_t fresh_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("LOCKSTEP_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  }();
  return seed;
}

// The worst ratio of many judgements.
class Worst {
 public:
  explicit Worst(std::string group) : group_(std::move(group)) {}
  ~Worst() {
    if (std::getenv("LOCKSTEP_TABLE") != nullptr)
      fmt::print("| {} | {} | {:.3f} | {} |\n", group_, count_, worst_, where_);
  }

  void see(const OwnError& own, const std::string& where) {
    ++count_;
    EXPECT_LE(own.ratio(), 1) << group_ << ": " << where << ", seed " << fresh_seed() << ": error "
                              << own.error << ", expected " << own.expected << ", element "
                              << own.worst_ratio << ", " << own.recorded << " for " << own.replayed;
    EXPECT_FALSE(own.non_finite) << group_ << ": " << where;
    if (own.ratio() <= worst_) return;
    worst_ = own.ratio();
    where_ = where;
  }

 private:
  std::string group_;
  std::string where_;
  int64_t count_ = 0;
  double worst_ = 0;
};

// A part each time, always another one; LOCKSTEP_THOROUGH=1 tries all.
inline bool tries(Random& random, int64_t one_of) {
  return std::getenv("LOCKSTEP_THOROUGH") != nullptr || random.below(one_of) == 0;
}

inline constexpr int64_t kLengths[] = {1, 7, 64, 255, 257, 4096};

// Channels that are far larger than the others, as models have.
struct Outliers {
  double size = 0;
  std::vector<int64_t> at;  // -1: the last one
  const char* name = "";
};
inline const Outliers kOutliers[] = {{0, {}, "none"},
                                     {20, {0}, "20 first"},
                                     {2000, {0}, "2,000 first"},
                                     {2000, {17}, "2,000 early"},
                                     {2000, {-1}, "2,000 last"},
                                     {150, {0, 1, 2, 3}, "four of 150"},
                                     {-1e5, {0}, "-1e5 first"},
                                     {3e6, {5, -1}, "two of 3e6"}};

inline void put(const Outliers& outliers, std::vector<double>& x) {
  const auto n = static_cast<int64_t>(x.size());
  for (const int64_t at : outliers.at)
    x[static_cast<size_t>(at < 0 ? n - 1 : std::min(at, n - 1))] = outliers.size;
}

// The numbers beside them.
inline constexpr std::string_view kBulks[] = {"0.3 gaussian", "0.3", "|0.3 gaussian|",
                                              "1e-3 uniform", "ramp"};

inline std::vector<double> bulk(Random& random, int64_t n, std::string_view kind) {
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) {
    double x = 0.3 * random.gaussian();
    if (kind == "0.3") x = 0.3;
    if (kind == "|0.3 gaussian|") x = std::fabs(x);
    if (kind == "1e-3 uniform") x = 1e-3 * random.uniform();
    if (kind == "ramp") x = 1 - 2 * static_cast<double>(i) / static_cast<double>(n);
    out.push_back(x);
  }
  return out;
}

template <class T>
std::string_view type_name() {
  if constexpr (std::is_same_v<T, double>) return "f64";
  if constexpr (std::is_same_v<T, float>) return "f32";
  if constexpr (std::is_same_v<T, Half>) return "f16";
  return "bf16";
}

}  // namespace lockstep::parity
