// A matrix of doubles, row by row.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::exec::reference {

struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;  // [rows, columns]

  Matrix() = default;
  Matrix(int64_t row_count, int64_t column_count)
      : rows(row_count),
        columns(column_count),
        values(static_cast<size_t>(row_count * column_count)) {}

  // Another size. Numbers of before stay where they were: large matrices cost much to clear.
  void reshape(int64_t row_count, int64_t column_count) {
    rows = row_count;
    columns = column_count;
    values.resize(static_cast<size_t>(row_count * column_count));
  }

  double* row(int64_t index) { return values.data() + index * columns; }
  const double* row(int64_t index) const { return values.data() + index * columns; }
};

}  // namespace lockstep::exec::reference
