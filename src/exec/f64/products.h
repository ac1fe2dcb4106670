// Products with weights, which are nearly all of the work of a judgement: on the CPU, or on a
// device that does the same by the same operations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/f64/panels.h"
#include "exec/reference/matrix.h"
#include "op/op.h"

namespace lockstep::exec::f64 {

// What rows are multiplied with.
enum class Factor { kWeights, kSquares, kSumsOfSquares };
// Columns of the weight whose squares go into one number of kSumsOfSquares.
inline constexpr int64_t kSummedSquares = 32;

// A product in single precision, by the operations of EstimatePanel::multiply.
struct Estimate {
  Factor factor = Factor::kWeights;
  const EstimateRows* x = nullptr;
  bool partial = false;  // with partial sums and their squares
  // Few of the sums are looked at: the CPU makes none, and hands out the panel for estimate_few().
  bool few = false;
};

// What is wanted of one weight: all from one decoding.
struct Task {
  const op::Weight& weight;
  // In double precision, with the bits of PanelProduct; null: not wanted.
  const Matrix* x = nullptr;
  bool squared = false;  // with the squares of the weights
  std::vector<Estimate> estimates = {};
  // The last bits of the product do not matter: those of QuickProduct will do.
  bool quick = false;

  int64_t rows() const { return x != nullptr ? x->rows : estimates.front().x->rows; }
};

// Some rows and columns of the results. A column is a row of the weight.
struct Part {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_column = 0;
  int64_t columns = 0;
  int64_t stride = 0;                             // of all results
  const double* product = nullptr;                // [rows, stride]
  std::span<const EstimatedSums> estimates = {};  // in the order of the task
  const DecodedPanel* panel = nullptr;            // where estimates of few sums have none
};

// Takes parts, on several threads at a time.
using Take = std::function<void(const Part&)>;

// Something other than the CPU that computes products.
class ProductDevice {
 public:
  virtual ~ProductDevice() = default;
  // Parts cover the results once. After an error some may have been taken.
  virtual Result<void> run(const Task& task, int threads, const Take& take) = 0;
};

class Products {
 public:
  static constexpr double kWorthADevice = 1e10;

  // Without a device, or once it has failed, the CPU does the work.
  // The device gets what comes after so many multiplications: it takes a while to start.
  explicit Products(std::unique_ptr<ProductDevice> device = nullptr,
                    double before_it_starts = kWorthADevice)
      : device_(std::move(device)), left_(before_it_starts) {}

  // Every place of the results is taken at least once, and all its takings are of the same numbers:
  // what a device has not finished is done again from the start.
  void run(const Task& task, int threads, const Take& take);

  // Why the device was given up; empty: it was not.
  const std::string& failure() const { return failure_; }

 private:
  std::mutex mutex_;  // a device does one task at a time
  std::unique_ptr<ProductDevice> device_;
  double left_;  // multiplications of the CPU before the device starts
  std::string failure_;
};

// Those without a device.
Products& cpu_products();

// weight · x
Matrix multiply(const op::Weight& weight, const Matrix& x, int threads,
                Products& products = cpu_products());
// The same with the squares of the weights, but for the last digits.
Matrix multiply_squares(const op::Weight& weight, const Matrix& x, int threads,
                        Products& products = cpu_products());

}  // namespace lockstep::exec::f64
