// A weight times many rows at once: its rows are decoded once for all of them, a panel at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "exec/f64/kernels/kernels.h"
#include "exec/reference/matrix.h"
#include "op/op.h"

namespace lockstep::exec::f64 {

using reference::Matrix;

// Some rows of a weight, decoded: [kPanel, stride], zeros where there is nothing.
struct DecodedPanel {
  int64_t first_row = 0;
  int64_t rows = 0;  // kPanel, or fewer at the end
  int64_t columns = 0;
  int64_t stride = 0;
  AlignedVector<float> floats;

  explicit DecodedPanel(int64_t column_count);
  void decode(const op::Weight& weight, int64_t panel);
  std::span<float> row(int64_t index) {
    return {floats.data() + index * stride, static_cast<size_t>(columns)};
  }
};

// Calls body(panel) for each panel of a weight, on several threads, each of which has a body of its
// own from make_body(). `work_a_weight`: multiplications that a number of the weight takes part in.
using PanelBody = std::function<void(DecodedPanel&)>;
void for_each_panel(const op::Weight& weight, int64_t work_a_weight, int threads,
                    const std::function<PanelBody()>& make_body);

// Rows as products read them: [blocks of kBlock columns, rows, stride], so that all that is read at
// a time lies together; zeros where there is nothing.
struct PaddedRows {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
  AlignedVector<double> numbers;

  PaddedRows(int64_t row_count, int64_t column_count);
  PaddedRows(const Matrix& matrix, int threads);
  // Where the row begins in the block that begins with the column.
  double* at(int64_t row, int64_t column) {
    return numbers.data() + (column / kBlock * rows + row) * stride;
  }
  const double* at(int64_t row, int64_t column) const {
    return numbers.data() + (column / kBlock * rows + row) * stride;
  }
};

// A panel times x, [x.rows, kPanel], by the operations of the plain code: the same bits.
class PanelProduct {
 public:
  // `exact_products`: x is in single precision. `squared`: the squares of the weights.
  PanelProduct(const PaddedRows& x, bool exact_products, bool squared);
  void operator()(const DecodedPanel& panel, double* out);

 private:
  int64_t block_width(int64_t column) const;
  void some_rows(const DecodedPanel& panel, int64_t first, int64_t count, double* out);

  const PaddedRows& x_;
  PaddedRows w_;
  bool exact_products_;
  bool squared_;
  AlignedVector<double> sums_;
  AlignedVector<double> lost_;
};

// The same where the last bits do not matter: half as many operations.
class QuickProduct {
 public:
  explicit QuickProduct(const PaddedRows& x) : x_(x) {}
  // `columns`: the panel's, as EstimatePanel has them.
  void operator()(std::span<const float> columns, double* out);

 private:
  const PaddedRows& x_;
  AlignedVector<double> w_;
};
bool fit_single_precision(const Matrix& matrix, int threads);

// Rows as estimates read them: [blocks, rows, kEstimateBlock], filled up with zeros, each row
// divided by a power of two, so that single precision is enough for numbers of any size.
struct EstimateRows {
  int64_t rows = 0;
  int64_t blocks = 0;
  std::vector<double> scale;  // by row
  AlignedVector<float> numbers;

  EstimateRows(const Matrix& matrix, bool squared, int threads);
};

// One row of a panel times some rows of `x`, written to out[row * kPanel + panel_row].
void estimate_few(const DecodedPanel& panel, int64_t panel_row, const EstimateRows& x,
                  std::span<const int64_t> rows, float* out);

// A panel for estimates: [blocks, kEstimateBlock, kPanel].
class EstimatePanel {
 public:
  void set(const DecodedPanel& panel);
  // What is to be multiplied, of the panel that was set: it, its squares, or the sums of the
  // squares of so many columns each, as columns.
  void take_weights();
  void take_squares();
  void take_sums_of_squares(int64_t together);
  // The panel that was set: [columns, kPanel].
  std::span<const float> weights() const {
    return {weights_.data(), static_cast<size_t>(columns_ * kPanel)};
  }
  // That times `x`, [x.rows, kPanel].
  void multiply(const EstimateRows& x, const EstimatedSums& out) const;

 private:
  int64_t columns_ = 0;
  AlignedVector<float> weights_;
  AlignedVector<float> others_;
  bool takes_others_ = false;
};

}  // namespace lockstep::exec::f64
