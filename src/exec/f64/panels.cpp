#include "exec/f64/panels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>

#include "base/parallel.h"
#include "quant/decode.h"

namespace lockstep::exec::f64 {
namespace {

// Multiply-adds below which starting a thread costs more than it saves.
constexpr int64_t kWorthAThread = 4'000'000;
// Rows of x whose sums a thread keeps in its own cache.
constexpr int64_t kRowsAtATime = 128;
// Rows of x for which weights are not worth a copy in double precision.
constexpr int64_t kFewRows = 4;

int64_t rounded_up(int64_t count, int64_t step) {
  return (count + step - 1) / step * step;
}

// Of rows of numbers: whole lines of the cache, and such that rows do not meet in one part of it.
int64_t row_stride(int64_t columns) {
  return rounded_up(columns, 16) + 16;
}

}  // namespace

bool fit_single_precision(const Matrix& matrix, int threads) {
  std::atomic<bool> fit = true;
  parallel_rows(matrix.rows, matrix.columns, threads, [&](int64_t r) {
    const double* row = matrix.row(r);
    if (!std::all_of(row, row + matrix.columns,
                     [](double x) { return static_cast<double>(static_cast<float>(x)) == x; }))
      fit = false;
  });
  return fit;
}

PaddedRows::PaddedRows(int64_t row_count, int64_t column_count)
    : rows(row_count),
      columns(column_count),
      stride(row_stride(std::min(kBlock, column_count))),
      numbers(static_cast<size_t>(rounded_up(columns, kBlock) / kBlock * rows * stride)) {}

PaddedRows::PaddedRows(const Matrix& matrix, int threads)
    : PaddedRows(matrix.rows, matrix.columns) {
  parallel_rows(rows, columns, threads, [&](int64_t t) {
    for (int64_t column = 0; column < columns; column += kBlock)
      std::copy_n(matrix.row(t) + column, std::min(kBlock, columns - column), at(t, column));
  });
}

PanelProduct::PanelProduct(const PaddedRows& x, bool exact_products, bool squared)
    : x_(x),
      w_(squared || x.rows > kFewRows ? kPanel : 0, x.columns),
      exact_products_(exact_products),
      squared_(squared),
      sums_(static_cast<size_t>(std::min(kRowsAtATime, x.rows) * kPanel * kLanes)),
      lost_(sums_.size()) {}

void PanelProduct::operator()(const DecodedPanel& panel, double* out) {
  for (int64_t r = 0; r < w_.rows; ++r)
    for (int64_t column = 0; column < x_.columns; column += kBlock)
      kernels().widen(panel.floats.data() + r * panel.stride + column, block_width(column),
                      squared_, w_.at(r, column));
  for (int64_t first = 0; first < x_.rows; first += kRowsAtATime)
    some_rows(panel, first, std::min(kRowsAtATime, x_.rows - first), out);
}

// Of the block that begins with the column, with the zeros at its end.
int64_t PanelProduct::block_width(int64_t column) const {
  return std::min(kBlock, rounded_up(x_.columns - column, kLanes));
}

void PanelProduct::some_rows(const DecodedPanel& panel, int64_t first, int64_t count, double* out) {
  for (int64_t column = 0; column < x_.columns; column += kBlock) {
    const bool direct = w_.rows == 0;
    kernels().add({.w = direct ? nullptr : w_.at(0, column),
                   .singles = panel.floats.data() + column,
                   .w_stride = direct ? panel.stride : w_.stride,
                   .x = x_.at(first, column),
                   .x_stride = x_.stride,
                   .x_rows = count,
                   .columns = block_width(column),
                   .exact_products = exact_products_,
                   .first = column == 0},
                  sums_.data(), lost_.data());
  }
  kernels().finish(sums_.data(), lost_.data(), count * kPanel, out + first * kPanel);
}

void QuickProduct::operator()(std::span<const float> columns, double* out) {
  // A block at a time, so that its doubles are still near when they are multiplied.
  w_.resize(static_cast<size_t>(kBlock * kPanel));
  for (int64_t column = 0; column < x_.columns; column += kBlock) {
    const int64_t count = std::min(kBlock, x_.columns - column);
    kernels().widen(columns.data() + column * kPanel, count * kPanel, false, w_.data());
    kernels().add_quickly({.w = w_.data(),
                           .x = x_.at(0, column),
                           .x_stride = x_.stride,
                           .x_rows = x_.rows,
                           .columns = count,
                           .first = column == 0},
                          out);
  }
}

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
  // Threads work on one range after another: what a body needs is made once for each of them.
  struct Worker {
    DecodedPanel panel;
    PanelBody body;
  };
  std::mutex mutex;
  std::vector<std::unique_ptr<Worker>> idle;
  const auto take = [&]() -> std::unique_ptr<Worker> {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return nullptr;
    auto worker = std::move(idle.back());
    idle.pop_back();
    return worker;
  };
  parallel_for(
      panels, std::max<int64_t>(1, kWorthAThread / work),
      [&](int64_t begin, int64_t end) {
        auto worker = take();
        if (worker == nullptr) worker.reset(new Worker{DecodedPanel(weight.columns), make_body()});
        for (int64_t i = begin; i < end; ++i) {
          worker->panel.decode(weight, i);
          worker->body(worker->panel);
        }
        const std::lock_guard lock(mutex);
        idle.push_back(std::move(worker));
      },
      threads);
}

EstimateRows::EstimateRows(const Matrix& matrix, bool squared, int threads)
    : rows(matrix.rows),
      blocks((matrix.columns + kEstimateBlock - 1) / kEstimateBlock),
      scale(static_cast<size_t>(rows)),
      numbers(static_cast<size_t>(blocks * rows * kEstimateBlock)) {
  parallel_rows(rows, matrix.columns, threads, [&](int64_t r) {
    const double* row = matrix.row(r);
    double largest = 0;
    for (int64_t i = 0; i < matrix.columns; ++i)
      if (std::isfinite(row[i])) largest = std::max(largest, std::fabs(row[i]));
    int exponent = 0;
    std::frexp(largest, &exponent);
    exponent = std::clamp(exponent, -1000, 1000);
    const double factor = std::ldexp(1.0, -exponent);
    scale[static_cast<size_t>(r)] = std::ldexp(1.0, squared ? 2 * exponent : exponent);
    for (int64_t block = 0; block < blocks; ++block) {
      const double* from = row + block * kEstimateBlock;
      float* to = numbers.data() + (block * rows + r) * kEstimateBlock;
      const int64_t count = std::min(kEstimateBlock, matrix.columns - block * kEstimateBlock);
      for (int64_t i = 0; i < count; ++i) {
        const double x = from[i] * factor;
        to[i] = static_cast<float>(squared ? x * x : x);
      }
    }
  });
}

void estimate_few(const DecodedPanel& panel, int64_t panel_row, const EstimateRows& x,
                  std::span<const int64_t> rows, float* out) {
  const float* const w = panel.floats.data() + panel_row * panel.stride;
  for (; !rows.empty(); rows = rows.subspan(std::min<size_t>(kFewSums, rows.size()))) {
    const auto count = std::min<int64_t>(kFewSums, std::ssize(rows));
    const float* of_x[kFewSums];
    for (int64_t i = 0; i < kFewSums; ++i)  // the last one again, where there are fewer
      of_x[i] =
          x.numbers.data() + rows[static_cast<size_t>(std::min(i, count - 1))] * kEstimateBlock;
    float sums[kFewSums];
    kernels().estimate_few(w, panel.columns, of_x, x.rows * kEstimateBlock, sums);
    for (int64_t i = 0; i < count; ++i)
      out[rows[static_cast<size_t>(i)] * kPanel + panel_row] = sums[i];
  }
}

void EstimatePanel::set(const DecodedPanel& panel) {
  columns_ = panel.columns;
  weights_.resize(static_cast<size_t>(rounded_up(columns_, kEstimateBlock) * kPanel));
  kernels().transpose(panel.floats.data(), panel.stride, columns_, weights_.data());
  std::fill(weights_.begin() + columns_ * kPanel, weights_.end(), 0.0F);
  take_weights();
}

void EstimatePanel::take_weights() {
  takes_others_ = false;
}

void EstimatePanel::take_squares() {
  others_.resize(weights_.size());
  std::ranges::transform(weights_, others_.begin(), [](float w) { return w * w; });
  takes_others_ = true;
}

void EstimatePanel::take_sums_of_squares(int64_t together) {
  const int64_t sums = (columns_ + together - 1) / together;
  others_.assign(static_cast<size_t>(rounded_up(sums, kEstimateBlock) * kPanel), 0.0F);
  for (int64_t i = 0; i < sums; ++i) {
    float sum[kPanel] = {};  // in registers
    const int64_t end = std::min(columns_, (i + 1) * together);
    for (int64_t column = i * together; column < end; ++column) {
      const float* from = weights_.data() + column * kPanel;
      for (int64_t r = 0; r < kPanel; ++r) sum[r] += from[r] * from[r];
    }
    std::copy_n(sum, kPanel, others_.data() + i * kPanel);
  }
  takes_others_ = true;
}

void EstimatePanel::multiply(const EstimateRows& x, const EstimatedSums& out) const {
  const auto count = static_cast<size_t>(x.rows * kPanel);
  std::fill_n(out.sum, count, 0.0F);
  if (out.partial != nullptr) {
    std::fill_n(out.partial, count, 0.0F);
    std::fill_n(out.partial_squares, count, 0.0F);
  }
  kernels().estimate((takes_others_ ? others_ : weights_).data(), x.numbers.data(), x.blocks,
                     x.rows, out);
}

}  // namespace lockstep::exec::f64
