#include "exec/f64/ops.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "base/random.h"
#include "exec/f64/products.h"
#include "exec/reference/sums.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace lockstep::exec::f64 {
namespace {

using reference::Place;

constexpr double kEdgeNumbers[] = {0.0,    -0.0,  1e-320, -1e-310, 1e-45, 1e300, -1e300,
                                   1e-300, 65504, 1e30,   -1e30,   1,     -1};

class FastOps : public ::testing::Test {
 protected:
  FastOps() { RecordProperty("seed", std::to_string(seed_)); }

  enum class Numbers { kSingle, kDouble, kEdges, kNotFinite };

  Matrix matrix(int64_t rows, int64_t columns, Numbers numbers = Numbers::kDouble) {
    Matrix out(rows, columns);
    for (double& x : out.values) {
      x = random_.gaussian();
      if (numbers == Numbers::kSingle) x = static_cast<double>(static_cast<float>(x));
      if (numbers == Numbers::kEdges) x = kEdgeNumbers[random_.below(std::ssize(kEdgeNumbers))];
      if (numbers == Numbers::kNotFinite && random_.below(50) == 0)
        x = random_.below(2) == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
    }
    return out;
  }

  op::Weight weight(quant::Format format, int64_t rows, int64_t columns) {
    const quant::FormatInfo& info = quant::info(format);
    std::vector<float> floats(static_cast<size_t>(rows * columns));
    for (float& x : floats) x = static_cast<float>(random_.gaussian());
    bytes_.assign(static_cast<size_t>(quant::size_bytes(info, rows * columns)), std::byte{0});
    quant::encode(format, floats.data(), rows * columns, bytes_.data());
    return {"weight", &info, rows, columns, bytes_};
  }

  // Both evaluate; the bits are the same.
  void expect_same(const op::What& what, const std::vector<const Matrix*>& inputs, int64_t width,
                   int threads) {
    const int64_t rows = inputs.empty() ? 9 : inputs[0]->rows;
    std::vector<int64_t> positions(static_cast<size_t>(rows));
    std::iota(positions.begin(), positions.end(), 3);
    std::vector<TokenId> tokens;
    for (int64_t t = 0; t < rows; ++t) tokens.push_back(static_cast<TokenId>((7 * t + 1) % 5));
    const Place place{tokens, positions};
    const Matrix plain = reference::evaluate(what, inputs, width, place, 1);
    const Matrix fast = f64::evaluate(what, inputs, width, place, threads);
    ASSERT_EQ(fast.values.size(), plain.values.size());
    for (size_t i = 0; i < plain.values.size(); ++i) {
      if (std::isnan(plain.values[i]) && std::isnan(fast.values[i])) continue;
      ASSERT_EQ(std::bit_cast<uint64_t>(fast.values[i]), std::bit_cast<uint64_t>(plain.values[i]))
          << "element " << i << " of " << rows << " x " << width << ": " << fast.values[i]
          << ", plain " << plain.values[i] << ", seed " << seed_;
    }
  }

  uint64_t seed_ = std::random_device{}();
  Random random_{seed_};
  std::vector<std::byte> bytes_;
};

TEST_F(FastOps, ProductsHaveTheBitsOfThePlainOnesInEveryFormat) {
  for (const quant::FormatInfo& info : quant::all_formats()) {
    if (!info.decodable || !quant::encodable(info.format())) continue;
    SCOPED_TRACE(std::string(info.name));
    for (const int64_t rows : {1, 31, 33, 70})
      for (const int64_t blocks : {1, 3}) {
        const op::Weight w = weight(info.format(), rows, blocks * info.block_values);
        const Matrix x = matrix(1 + random_.below(14), w.columns,
                                random_.below(2) == 0 ? Numbers::kSingle : Numbers::kDouble);
        expect_same(op::Linear{w, {}}, {&x}, rows, 2);
      }
  }
}

TEST_F(FastOps, ProductsHaveThemForAllSizesAndNumbers) {
  for (const int64_t columns : {1, 7, 8, 63, 255, 256, 257, 520, 1000})
    for (const int64_t count : {1, 2, 5, 6, 7, 13, 127, 129, 257})
      for (const Numbers numbers :
           {Numbers::kSingle, Numbers::kDouble, Numbers::kEdges, Numbers::kNotFinite}) {
        if (count > 13 && random_.below(3) > 0) continue;
        const op::Weight w = weight(quant::Format::kF32, 37, columns);
        const std::vector<std::byte> kept = bytes_;
        op::Linear linear{w, {}};
        linear.weight.data = kept;
        linear.bias = weight(quant::Format::kF32, 1, 37);
        const Matrix x = matrix(count, columns, numbers);
        expect_same(linear, {&x}, 37, 1 + static_cast<int>(random_.below(4)));
      }
}

TEST_F(FastOps, OtherOpsHaveThem) {
  const Matrix x = matrix(9, 512);
  const Matrix y = matrix(9, 512);
  op::Rope rope;
  rope.head_size = 64;
  rope.dims = 64;
  op::Norm norm;
  norm.group = 512;
  norm.epsilon = 1e-5;
  norm.weight = weight(quant::Format::kF32, 1, 512);
  for (const int threads : {1, 3}) {
    expect_same(norm, {&x}, 512, threads);
    expect_same(rope, {&x}, 512, threads);
    expect_same(op::Activate{}, {&x, &y}, 512, threads);
    expect_same(op::Add{}, {&x, &y}, 512, threads);
    expect_same(op::Scale{0.3}, {&x}, 512, threads);
    expect_same(op::SoftCap{2.5}, {&x}, 512, threads);
    expect_same(op::Slice{100}, {&x}, 77, threads);
    expect_same(op::HeadParts{8, 3, 20}, {&x}, 160, threads);
    expect_same(op::HeadParts{8, 0, 20}, {&x, &y}, 8 * 84, threads);
  }
  const op::Weight table = weight(quant::Format::kQ8_0, 5, 512);
  expect_same(op::Embed{table, op::Embed::Index::kToken}, {}, 512, 2);
}

// Every kind of machine that can be tried here.
TEST_F(FastOps, ExpertsHaveThem) {
  for (const int64_t tokens : {1, 7, 65})
    for (const bool own : {false, true}) {
      const op::ExpertLinear all{6, weight(quant::Format::kQ8_0, 6 * 33, 64), {}};
      const Matrix x = matrix(tokens, own ? 3 * 64 : 64, Numbers::kSingle);
      const Matrix router = matrix(tokens, 6);
      expect_same(op::Choose{}, {&router}, 3, 2);
      const Matrix* const routed[] = {&router};
      Matrix choice = reference::evaluate(op::Choose{}, routed, 3, {}, 1);
      choice.values[0] = 7;  // no expert
      expect_same(op::Weigh{}, {&router, &choice}, 3, 2);
      expect_same(all, {&x, &choice}, 3 * 33, 2);
    }
}

TEST_F(FastOps, KernelsAgreeWithThePlainSum) {
  constexpr int64_t kStride = 272;
  for (const Kernels* each : all_kernels()) {
    if (!each->supported()) continue;
    SCOPED_TRACE(each->name);
    for (const bool exact : {false, true})
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13})
        for (const int64_t columns : {8, 248, 256}) {
          const Numbers numbers = exact ? Numbers::kSingle : Numbers::kDouble;
          const Matrix w = matrix(kPanel, kStride, Numbers::kSingle);
          const Matrix x = matrix(rows, kStride, numbers);
          std::vector<double> sums(static_cast<size_t>(rows * kPanel * kLanes));
          std::vector<double> lost(sums.size());
          const std::vector<float> singles(w.values.begin(), w.values.end());
          const double* const as_doubles = random_.below(2) == 0 ? w.row(0) : nullptr;
          each->add(
              {as_doubles, singles.data(), kStride, x.row(0), kStride, rows, columns, exact, true},
              sums.data(), lost.data());
          std::vector<double> products(static_cast<size_t>(rows * kPanel));
          each->finish(sums.data(), lost.data(), rows * kPanel, products.data());
          for (int64_t t = 0; t < rows; ++t)
            for (int64_t r = 0; r < kPanel; ++r)
              EXPECT_EQ(products[static_cast<size_t>(t * kPanel + r)],
                        reference::dot(w.row(r), x.row(t), columns))
                  << rows << " x " << columns << ", seed " << seed_;
        }
  }
}

TEST_F(FastOps, QuickKernelsAgreeWithThePlainSum) {
  constexpr int64_t kStride = 272;
  for (const Kernels* each : all_kernels()) {
    if (!each->supported()) continue;
    SCOPED_TRACE(each->name);
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13})
      for (const int64_t columns : {1, 7, 255, 256}) {
        const Matrix w = matrix(columns, kPanel, Numbers::kSingle);
        const Matrix x = matrix(rows, kStride, Numbers::kDouble);
        // In two steps, the second of which goes on with the sums of the first.
        const int64_t some = columns / 3;
        std::vector<double> sums(static_cast<size_t>(rows * kPanel), std::nan(""));
        each->add_quickly({w.row(0), x.row(0), kStride, rows, some, true}, sums.data());
        each->add_quickly({w.row(some), x.row(0) + some, kStride, rows, columns - some, false},
                          sums.data());
        for (int64_t t = 0; t < rows; ++t)
          for (int64_t r = 0; r < kPanel; ++r) {
            double sum = 0;
            double size = 0;
            for (int64_t i = 0; i < columns; ++i) {
              sum += w.row(i)[r] * x.row(t)[i];
              size += std::fabs(w.row(i)[r] * x.row(t)[i]);
            }
            const double found = sums[static_cast<size_t>(t * kPanel + r)];
            if (std::isfinite(size))
              EXPECT_LE(std::fabs(found - sum), 1e-13 * size) << rows << " x " << columns;
            else
              EXPECT_FALSE(std::isfinite(found) && std::isfinite(sum));
          }
      }
  }
}

TEST_F(FastOps, EstimatesAreAsGoodAsSinglePrecision) {
  for (const Kernels* each : all_kernels()) {
    if (!each->supported()) continue;
    SCOPED_TRACE(each->name);
    for (const int64_t rows : {1, 2, 6, 11, 12, 13, 25}) {
      constexpr int64_t kBlocks = 3;
      const auto floats = [&](int64_t count) {
        std::vector<float> out(static_cast<size_t>(count));
        for (float& x : out) x = static_cast<float>(random_.gaussian());
        return out;
      };
      const auto w = floats(kBlocks * kEstimateBlock * kPanel);
      const auto x = floats(kBlocks * kEstimateBlock * rows);
      std::vector<float> sum(static_cast<size_t>(rows * kPanel));
      std::vector<float> partial(sum.size());
      std::vector<float> squares(sum.size());
      each->estimate(w.data(), x.data(), kBlocks, rows,
                     {sum.data(), partial.data(), squares.data()});
      for (int64_t t = 0; t < rows; ++t)
        for (int64_t r = 0; r < kPanel; ++r) {
          double total = 0;
          double of_partial = 0;
          double of_squares = 0;
          for (int64_t block = 0; block < kBlocks; ++block) {
            for (int64_t i = 0; i < kEstimateBlock; ++i)
              total += static_cast<double>(
                           w[static_cast<size_t>((block * kEstimateBlock + i) * kPanel + r)]) *
                       static_cast<double>(
                           x[static_cast<size_t>((block * rows + t) * kEstimateBlock + i)]);
            of_partial += total;
            of_squares += total * total;
          }
          const auto place = static_cast<size_t>(t * kPanel + r);
          EXPECT_NEAR(static_cast<double>(sum[place]), total, 1e-4);
          std::vector<float> row;
          for (int64_t i = 0; i < kBlocks * kEstimateBlock; ++i)
            row.push_back(w[static_cast<size_t>(i * kPanel + r)]);
          const float* const same = x.data() + t * kEstimateBlock;
          const float* const first = x.data();
          const float* const some[kFewSums] = {first, first, same, first};
          float few[kFewSums];
          each->estimate_few(row.data(), std::ssize(row), some, rows * kEstimateBlock, few);
          EXPECT_NEAR(static_cast<double>(few[2]), total, 1e-4);
          EXPECT_EQ(few[0], few[3]);
          EXPECT_NEAR(static_cast<double>(partial[place]), of_partial, 3e-4);
          EXPECT_NEAR(static_cast<double>(squares[place]), of_squares, 1e-5 * of_squares + 1e-3);
        }
    }
  }
}

TEST_F(FastOps, PanelsAreLaidOutAnewWithTheSameNumbers) {
  for (const Kernels* each : all_kernels()) {
    if (!each->supported()) continue;
    SCOPED_TRACE(each->name);
    for (const int64_t columns : {1, 7, 16, 31, 255, 256, 257}) {
      const int64_t stride = (columns + kLanes - 1) / kLanes * kLanes + random_.below(3);
      std::vector<float> rows(static_cast<size_t>(kPanel * stride + kLanes));
      for (float& x : rows) x = static_cast<float>(random_.gaussian());
      std::vector<float> transposed(static_cast<size_t>(columns * kPanel + 1), -7.0F);
      each->transpose(rows.data(), stride, columns, transposed.data());
      EXPECT_EQ(transposed.back(), -7.0F) << "seed " << seed_;
      for (int64_t r = 0; r < kPanel; ++r)
        for (int64_t i = 0; i < columns; ++i)
          ASSERT_EQ(transposed[static_cast<size_t>(i * kPanel + r)],
                    rows[static_cast<size_t>(r * stride + i)])
              << "seed " << seed_;
      const int64_t whole = (columns + kLanes - 1) / kLanes * kLanes;
      for (const bool squared : {false, true}) {
        std::vector<double> wide(static_cast<size_t>(whole + 1), -7.0);
        each->widen(rows.data() + stride, whole, squared, wide.data());
        EXPECT_EQ(wide.back(), -7.0) << "seed " << seed_;
        for (int64_t i = 0; i < whole; ++i) {
          const auto x = static_cast<double>(rows[static_cast<size_t>(stride + i)]);
          ASSERT_EQ(wide[static_cast<size_t>(i)], squared ? x * x : x) << "seed " << seed_;
        }
      }
    }
  }
}

TEST_F(FastOps, SquaresAreThoseOfTheWeights) {
  const op::Weight w = weight(quant::Format::kQ4_K, 40, 512);
  Matrix x = matrix(5, 512);
  for (double& number : x.values) number = std::fabs(number);
  const Matrix out = multiply_squares(w, x, 2);
  std::vector<float> row(512);
  for (int64_t r = 0; r < w.rows; ++r) {
    quant::decode(quant::Format::kQ4_K, w.row(r), 512, row.data());
    for (int64_t t = 0; t < x.rows; ++t) {
      double sum = 0;
      for (size_t i = 0; i < row.size(); ++i)
        sum += static_cast<double>(row[i]) * static_cast<double>(row[i]) * x.row(t)[i];
      EXPECT_NEAR(out.row(t)[r], sum, 1e-13 * sum);
    }
  }
}

}  // namespace
}  // namespace lockstep::exec::f64
