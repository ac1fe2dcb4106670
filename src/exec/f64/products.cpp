#include "exec/f64/products.h"

#include <algorithm>
#include <optional>

namespace lockstep::exec::f64 {
namespace {

// The results of one panel after another, on one thread.
class PanelTask {
 public:
  PanelTask(const Task& task, const std::optional<PaddedRows>& x, bool exact, const Take& take)
      : task_(task), take_(take) {
    const auto count = static_cast<size_t>(task.rows() * kPanel);
    if (x && task.quick)
      quick_.emplace(*x);
    else if (x)
      product_.emplace(*x, exact, task.squared);
    if (x) doubles_.resize(count);
    size_t singles = 0;
    for (const Estimate& each : task.estimates) singles += numbers_of(each) * count;
    floats_.resize(singles);
    float* next = floats_.data();
    for (const Estimate& each : task.estimates) {
      EstimatedSums sums = {each.few ? nullptr : next};
      if (each.partial) sums = {next, next + count, next + 2 * count};
      next += numbers_of(each) * count;
      sums_.push_back(sums);
    }
  }

  void operator()(const DecodedPanel& panel) {
    if (product_) (*product_)(panel, doubles_.data());
    if (!sums_.empty() || quick_) panel_.set(panel);
    if (quick_) (*quick_)(panel_.weights(), doubles_.data());
    std::optional<Factor> taken;
    for (size_t i = 0; i < sums_.size(); ++i) {
      const Estimate& each = task_.estimates[i];
      if (each.few) continue;
      if (taken != each.factor) take(each.factor);
      taken = each.factor;
      panel_.multiply(*each.x, sums_[i]);
    }
    take_({.first_row = 0,
           .rows = task_.rows(),
           .first_column = panel.first_row,
           .columns = panel.rows,
           .stride = kPanel,
           .product = doubles_.empty() ? nullptr : doubles_.data(),
           .estimates = sums_,
           .panel = &panel});
  }

 private:
  static size_t numbers_of(const Estimate& estimate) {
    if (estimate.few) return 0;
    return estimate.partial ? 3 : 1;
  }

  void take(Factor factor) {
    if (factor == Factor::kWeights)
      panel_.take_weights();
    else if (factor == Factor::kSquares)
      panel_.take_squares();
    else
      panel_.take_sums_of_squares(kSummedSquares);
  }

  const Task& task_;
  const Take& take_;
  std::optional<PanelProduct> product_;
  std::optional<QuickProduct> quick_;
  EstimatePanel panel_;
  std::vector<double> doubles_;
  std::vector<float> floats_;
  std::vector<EstimatedSums> sums_;
};

void run_on_cpu(const Task& task, int threads, const Take& take) {
  std::optional<PaddedRows> x;
  if (task.x != nullptr) x.emplace(*task.x, threads);
  // Weights are single precision: with such an x, 48 digits hold a product.
  const bool exact = x && !task.squared && !task.quick && fit_single_precision(*task.x, threads);
  const int64_t work = task.rows() * (task.estimates.empty() ? 1 : 2);
  for_each_panel(task.weight, work, threads, [&]() -> PanelBody {
    const auto panels = std::make_shared<PanelTask>(task, x, exact, take);
    return [panels](DecodedPanel& panel) { (*panels)(panel); };
  });
}

Matrix product(const op::Weight& weight, const Matrix& x, bool squared, int threads,
               Products& products) {
  Matrix out(x.rows, weight.rows);
  products.run({.weight = weight, .x = &x, .squared = squared}, threads, [&](const Part& part) {
    for (int64_t t = 0; t < part.rows; ++t)
      std::copy_n(part.product + t * part.stride, part.columns,
                  out.row(part.first_row + t) + part.first_column);
  });
  return out;
}

}  // namespace

void Products::run(const Task& task, int threads, const Take& take) {
  if (task.rows() == 0 || task.weight.rows == 0) return;
  {
    const std::lock_guard lock(mutex_);
    left_ -= static_cast<double>(task.rows()) * static_cast<double>(task.weight.rows) *
             static_cast<double>(task.weight.columns);
    if (device_ != nullptr && left_ < 0) {
      const auto done = device_->run(task, threads, take);
      if (done.ok()) return;
      failure_ = done.error().message;
      device_.reset();
    }
  }
  run_on_cpu(task, threads, take);
}

Products& cpu_products() {
  static Products products;
  return products;
}

Matrix multiply(const op::Weight& weight, const Matrix& x, int threads, Products& products) {
  return product(weight, x, false, threads, products);
}

Matrix multiply_squares(const op::Weight& weight, const Matrix& x, int threads,
                        Products& products) {
  return product(weight, x, true, threads, products);
}

}  // namespace lockstep::exec::f64
