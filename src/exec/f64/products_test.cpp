#include "exec/f64/products.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "base/random.h"
#include "quant/encode.h"

namespace lockstep::exec::f64 {
namespace {

// A weight, rows to multiply it with, and all that can be wanted of the two.
class ProductsTest : public ::testing::Test {
 protected:
  struct Case {
    std::vector<std::byte> bytes;
    op::Weight weight;
    Matrix x;
    Matrix shared;
    std::unique_ptr<EstimateRows> rows;
    std::unique_ptr<EstimateRows> squares;
    std::unique_ptr<EstimateRows> few;

    Task task(bool squared) const {
      return {weight,
              &x,
              squared,
              {{Factor::kWeights, rows.get(), true},
               {Factor::kSquares, squares.get()},
               {Factor::kSumsOfSquares, few.get()}}};
    }
  };

  std::unique_ptr<Case> make(quant::Format format, int64_t weight_rows, int64_t columns,
                             int64_t rows) {
    auto out = std::make_unique<Case>();
    const quant::FormatInfo& info = quant::info(format);
    std::vector<float> floats(static_cast<size_t>(weight_rows * columns));
    for (float& x : floats) x = static_cast<float>(random_.gaussian());
    out->bytes.resize(static_cast<size_t>(quant::size_bytes(info, weight_rows * columns)));
    quant::encode(format, floats.data(), weight_rows * columns, out->bytes.data());
    out->weight = {"weight", &info, weight_rows, columns, out->bytes};
    out->x = Matrix(rows, columns);
    for (double& x : out->x.values) x = random_.gaussian();
    out->shared = Matrix(rows, (columns + kSummedSquares - 1) / kSummedSquares);
    for (double& x : out->shared.values) x = random_.uniform();
    out->rows = std::make_unique<EstimateRows>(out->x, false, 1);
    out->squares = std::make_unique<EstimateRows>(out->x, true, 1);
    out->few = std::make_unique<EstimateRows>(out->shared, false, 1);
    return out;
  }

  // Everything that was taken, in one list; NaN where nothing was.
  static std::vector<double> all(Products& products, const Task& task, int threads) {
    const int64_t columns = task.weight.rows;
    const int64_t each = task.rows() * columns;
    std::vector<double> out(static_cast<size_t>(6 * each), std::nan(""));
    products.run(task, threads, [&](const Part& part) {
      for (int64_t t = 0; t < part.rows; ++t)
        for (int64_t i = 0; i < part.columns; ++i) {
          const int64_t from = t * part.stride + i;
          const auto to =
              static_cast<size_t>((part.first_row + t) * columns + part.first_column + i);
          const auto step = static_cast<size_t>(each);
          out[to] = part.product[from];
          out[to + step] = static_cast<double>(part.estimates[0].sum[from]);
          out[to + 2 * step] = static_cast<double>(part.estimates[0].partial[from]);
          out[to + 3 * step] = static_cast<double>(part.estimates[0].partial_squares[from]);
          out[to + 4 * step] = static_cast<double>(part.estimates[1].sum[from]);
          out[to + 5 * step] = static_cast<double>(part.estimates[2].sum[from]);
        }
    });
    return out;
  }

  uint64_t seed_ = std::random_device{}();
  Random random_{seed_};
};

// Hands out so many wrong parts of each task, then fails, from the task of that number on.
class FailingDevice : public ProductDevice {
 public:
  FailingDevice(int good_tasks, int wrong_parts)
      : good_tasks_(good_tasks), wrong_parts_(wrong_parts) {}

  Result<void> run(const Task& task, int threads, const Take& take) override {
    Products cpu;
    if (good_tasks_-- > 0) {
      cpu.run(task, threads, take);
      return {};
    }
    std::atomic<int> taken = 0;
    cpu.run(task, threads, [&](const Part& part) {
      if (taken++ >= wrong_parts_) return;
      std::vector<double> wrong(static_cast<size_t>(part.rows * part.stride), 1e99);
      Part other = part;
      other.product = wrong.data();
      take(other);
    });
    return error("out of memory");
  }

 private:
  int good_tasks_;
  int wrong_parts_;
};

TEST_F(ProductsTest, EveryPlaceIsTakenWithItsOwnNumbers) {
  for (const int64_t rows : {1, 7, 40})
    for (const int64_t weight_rows : {1, 31, 33, 70}) {
      const auto made = make(quant::Format::kF32, weight_rows, 255, rows);
      Products products;
      const auto whole = all(products, made->task(false), 3);
      const Matrix product = multiply(made->weight, made->x, 1);
      for (size_t i = 0; i < product.values.size(); ++i)
        ASSERT_EQ(whole[i], product.values[i]) << "seed " << seed_;
      for (const double x : whole) ASSERT_TRUE(std::isfinite(x)) << "seed " << seed_;
      const auto squared = all(products, made->task(true), 1);
      const Matrix of_squares = multiply_squares(made->weight, made->x, 2);
      for (size_t i = 0; i < product.values.size(); ++i)
        ASSERT_EQ(squared[i], of_squares.values[i]) << "seed " << seed_;
    }
}

// Where the last bits do not matter; the bits of a row do not depend on the rows beside it.
TEST_F(ProductsTest, QuickOnesDifferInTheLastDigits) {
  for (const quant::Format format : {quant::Format::kF32, quant::Format::kQ4_K})
    for (const int64_t columns : {256, 768, 1280})
      for (const int64_t rows : {1, 5, 6, 7, 40, 131}) {
        const auto made = make(format, 70, columns, rows);
        Task task = made->task(false);
        const auto exact = all(cpu_products(), task, 2);
        task.quick = true;
        const auto quick = all(cpu_products(), task, 2);
        const auto products = static_cast<size_t>(rows * made->weight.rows);
        for (int64_t t = 0; t < rows; ++t) {
          const auto begin = static_cast<size_t>(t * made->weight.rows);
          double size = 0;
          for (size_t i = begin; i < begin + 70; ++i) size += exact[i] * exact[i];
          size = std::sqrt(size / 70);
          for (size_t i = begin; i < begin + 70; ++i)
            ASSERT_NEAR(quick[i], exact[i], 1e-13 * size) << "seed " << seed_;
        }
        for (size_t i = products; i < exact.size(); ++i) ASSERT_EQ(quick[i], exact[i]);
        // The last row alone.
        const auto last = make(format, 70, columns, 1);
        std::copy_n(made->x.row(rows - 1), columns, last->x.row(0));
        Task alone{.weight = made->weight, .x = &last->x, .estimates = last->task(false).estimates};
        alone.quick = true;
        const auto one = all(cpu_products(), alone, 1);
        for (size_t i = 0; i < 70; ++i)
          ASSERT_EQ(one[i], quick[products - 70 + i]) << "seed " << seed_;
      }
}

TEST_F(ProductsTest, ADeviceThatFailsHalfwayLeavesNothingBehind) {
  for (const int good : {0, 2})
    for (const int wrong : {0, 1, 2, 100}) {
      Products products(std::make_unique<FailingDevice>(good, wrong), 0);
      for (int i = 0; i < 4; ++i) {
        const auto made = make(quant::Format::kQ4_K, 70, 512, 1 + random_.below(20));
        const auto expected = all(cpu_products(), made->task(false), 2);
        EXPECT_EQ(all(products, made->task(false), 2), expected) << "seed " << seed_;
        EXPECT_EQ(products.failure(), i < good ? "" : "out of memory");
      }
    }
}

TEST_F(ProductsTest, ADeviceStartsWhereThereIsWorkEnough) {
  const auto made = make(quant::Format::kF32, 10, 100, 1);
  Products products(std::make_unique<FailingDevice>(0, 1), 2500);
  for (const char* failure : {"", "", "out of memory"}) {
    multiply(made->weight, made->x, 1, products);
    EXPECT_EQ(products.failure(), failure);
  }
}

TEST_F(ProductsTest, NothingIsDoneForNoRows) {
  Products products(std::make_unique<FailingDevice>(0, 1), 0);
  const auto made = make(quant::Format::kF32, 3, 5, 0);
  EXPECT_TRUE(multiply(made->weight, made->x, 1, products).values.empty());
  EXPECT_EQ(products.failure(), "");
}

}  // namespace
}  // namespace lockstep::exec::f64
