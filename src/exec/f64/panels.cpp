#include "exec/f64/panels.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "exec/reference/sums.h"
#include "quant/decode.h"

namespace lockstep::exec::f64 {
namespace {

// Multiply-adds below which starting a thread costs more than it saves.
constexpr int64_t kWorthAThread = 4'000'000;
// Rows of x whose sums a thread keeps in its own cache.
constexpr int64_t kRowsAtATime = 128;

int64_t rounded_up(int64_t count, int64_t step) {
  return (count + step - 1) / step * step;
}

// Of rows of numbers: whole lines of the cache, and such that rows do not meet in one part of it.
int64_t row_stride(int64_t columns) {
  return rounded_up(columns, 16) + 16;
}

bool fit_single_precision(std::span<const double> numbers) {
  return std::ranges::all_of(
      numbers, [](double x) { return static_cast<double>(static_cast<float>(x)) == x; });
}

// Doubles for the kernels: [rows, stride].
struct PaddedRows {
  int64_t stride = 0;
  AlignedVector<double> numbers;

  PaddedRows(int64_t rows, int64_t columns)
      : stride(row_stride(columns)), numbers(static_cast<size_t>(rows * stride)) {}
  double* row(int64_t index) { return numbers.data() + index * stride; }
  const double* row(int64_t index) const { return numbers.data() + index * stride; }
};

// Multiplies panels with the rows of x.
class PanelProduct {
 public:
  PanelProduct(const PaddedRows& x, bool exact_products, bool squared, Matrix& out)
      : x_(x),
        exact_products_(exact_products),
        squared_(squared),
        sums_(static_cast<size_t>(std::min(kRowsAtATime, out.rows) * kPanel * kLanes)),
        lost_(sums_.size()),
        out_(out) {}

  void operator()(const DecodedPanel& panel) {
    PaddedRows w(kPanel, panel.columns);
    for (int64_t r = 0; r < panel.rows; ++r) {
      const float* from = panel.floats.data() + r * panel.stride;
      std::copy_n(from, panel.columns, w.row(r));
      if (squared_)
        for (int64_t i = 0; i < panel.columns; ++i) w.row(r)[i] *= w.row(r)[i];
    }
    for (int64_t first = 0; first < out_.rows; first += kRowsAtATime)
      some_rows(panel, w, first, std::min(kRowsAtATime, out_.rows - first));
  }

 private:
  void some_rows(const DecodedPanel& panel, const PaddedRows& w, int64_t first, int64_t count) {
    std::ranges::fill(sums_, 0.0);
    std::ranges::fill(lost_, 0.0);
    for (int64_t column = 0; column < panel.columns; column += kBlock) {
      const int64_t columns = std::min(kBlock, rounded_up(panel.columns - column, kLanes));
      products().add({.w = w.row(0) + column,
                      .w_stride = w.stride,
                      .x = x_.row(first) + column,
                      .x_stride = x_.stride,
                      .x_rows = count,
                      .columns = columns,
                      .exact_products = exact_products_},
                     sums_.data(), lost_.data());
    }
    for (int64_t t = 0; t < count; ++t)
      for (int64_t r = 0; r < panel.rows; ++r) {
        const int64_t place = (t * kPanel + r) * kLanes;
        out_.row(first + t)[panel.first_row + r] = reference::with_lost(
            reference::across(sums_.data() + place), reference::across(lost_.data() + place));
      }
  }

  const PaddedRows& x_;
  bool exact_products_;
  bool squared_;
  AlignedVector<double> sums_;
  AlignedVector<double> lost_;
  Matrix& out_;
};

Matrix product(const op::Weight& weight, const Matrix& x, bool squared, int threads) {
  PaddedRows padded(x.rows, x.columns);
  for (int64_t t = 0; t < x.rows; ++t) std::copy_n(x.row(t), x.columns, padded.row(t));
  // Weights are single precision: with such an x, 48 digits hold a product.
  const bool exact = !squared && fit_single_precision(x.values);
  Matrix out(x.rows, weight.rows);
  for_each_panel(weight, x.rows, threads,
                 [&] { return PanelProduct(padded, exact, squared, out); });
  return out;
}

}  // namespace

DecodedPanel::DecodedPanel(int64_t column_count)
    : columns(column_count),
      stride(row_stride(column_count)),
      floats(static_cast<size_t>(kPanel * stride)) {}

void DecodedPanel::decode(const op::Weight& weight, int64_t panel) {
  first_row = panel * kPanel;
  rows = std::min(kPanel, weight.rows - first_row);
  for (int64_t r = 0; r < rows; ++r)
    quant::decode(weight.format->format(), weight.row(first_row + r), columns, row(r).data());
  std::fill(floats.begin() + rows * stride, floats.end(), 0.0F);
}

void for_each_panel(const op::Weight& weight, int64_t work_a_weight, int threads,
                    const std::function<PanelBody()>& make_body) {
  constexpr int64_t kDecoding = 16;  // as many multiplications
  const int64_t panels = (weight.rows + kPanel - 1) / kPanel;
  const int64_t work = kPanel * weight.columns * (work_a_weight + kDecoding);
  parallel_for(
      panels, std::max<int64_t>(1, kWorthAThread / work),
      [&](int64_t begin, int64_t end) {
        DecodedPanel panel(weight.columns);
        const PanelBody body = make_body();
        for (int64_t i = begin; i < end; ++i) {
          panel.decode(weight, i);
          body(panel);
        }
      },
      threads);
}

Matrix multiply(const op::Weight& weight, const Matrix& x, int threads) {
  return product(weight, x, false, threads);
}

Matrix multiply_squares(const op::Weight& weight, const Matrix& x, int threads) {
  return product(weight, x, true, threads);
}

EstimateRows::EstimateRows(const Matrix& matrix)
    : rows(matrix.rows),
      blocks((matrix.columns + kEstimateBlock - 1) / kEstimateBlock),
      numbers(static_cast<size_t>(blocks * rows * kEstimateBlock)) {
  for (int64_t r = 0; r < rows; ++r) {
    const double* row = matrix.row(r);
    double largest = 0;
    for (int64_t i = 0; i < matrix.columns; ++i)
      if (std::isfinite(row[i])) largest = std::max(largest, std::fabs(row[i]));
    scale.push_back(largest > 0 ? std::exp2(std::ceil(std::log2(largest))) : 1);
    for (int64_t i = 0; i < matrix.columns; ++i) {
      const int64_t block = i / kEstimateBlock;
      numbers[static_cast<size_t>((block * rows + r) * kEstimateBlock + i % kEstimateBlock)] =
          static_cast<float>(row[i] / scale.back());
    }
  }
}

void EstimatePanel::set(const DecodedPanel& panel, bool squared) {
  numbers_.resize(static_cast<size_t>(rounded_up(panel.columns, kEstimateBlock) * kPanel));
  constexpr int64_t kTogether = 16;  // rows: they fill whole lines of the cache
  for (int64_t first = 0; first < kPanel; first += kTogether)
    for (int64_t column = 0; column < panel.columns; ++column) {
      const float* in = panel.floats.data() + first * panel.stride + column;
      float* out = numbers_.data() + column * kPanel + first;
      for (int64_t r = 0; r < kTogether; ++r) out[r] = in[r * panel.stride];
      if (squared)
        for (int64_t r = 0; r < kTogether; ++r) out[r] *= out[r];
    }
  std::fill(numbers_.begin() + panel.columns * kPanel, numbers_.end(), 0.0F);
}

void EstimatePanel::multiply(const EstimateRows& x, const EstimatedSums& out) const {
  const auto count = static_cast<size_t>(x.rows * kPanel);
  std::fill_n(out.sum, count, 0.0F);
  if (out.partial != nullptr) {
    std::fill_n(out.partial, count, 0.0F);
    std::fill_n(out.partial_squares, count, 0.0F);
  }
  products().estimate(numbers_.data(), x.numbers.data(), x.blocks, x.rows, out);
}

}  // namespace lockstep::exec::f64
