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

// Rows of x as products read them: [rows, stride], zeros where there is nothing.
struct PaddedRows {
  int64_t rows = 0;
  int64_t stride = 0;
  AlignedVector<double> numbers;

  PaddedRows(int64_t row_count, int64_t columns);
  PaddedRows(const Matrix& matrix, int threads);
  double* row(int64_t index) { return numbers.data() + index * stride; }
  const double* row(int64_t index) const { return numbers.data() + index * stride; }
};

// A panel times x, [x.rows, kPanel], by the operations of the plain code: the same bits.
class PanelProduct {
 public:
  // `exact_products`: x is in single precision. `squared`: the squares of the weights.
  PanelProduct(const PaddedRows& x, int64_t columns, bool exact_products, bool squared);
  void operator()(const DecodedPanel& panel, double* out);

 private:
  void some_rows(const DecodedPanel& panel, int64_t first, int64_t count, double* out);

  const PaddedRows& x_;
  PaddedRows w_;
  bool exact_products_;
  bool squared_;
  AlignedVector<double> sums_;
  AlignedVector<double> lost_;
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

// A panel for estimates: [blocks, kEstimateBlock, kPanel].
class EstimatePanel {
 public:
  void set(const DecodedPanel& panel, bool squared);
  // The sums of the squares of so many columns each, as columns.
  void set_sums_of_squares(const DecodedPanel& panel, int64_t together);
  // The panel times `x`, [x.rows, kPanel].
  void multiply(const EstimateRows& x, const EstimatedSums& out) const;

 private:
  AlignedVector<float> numbers_;
};

}  // namespace lockstep::exec::f64
