#include "doctor/precision_results.h"

#include <algorithm>
#include <cmath>

namespace lockstep::doctor {
namespace {

constexpr double kMostExact = 0.75;

// Single precision's share in a number, or double's where that is what may have been lost.
double own_share(const Grid& grid) {
  return grid.fraction == 23 ? 0x1p-50 : 0x1p-22;
}

// The scale that a number of a row has, and the distance of its neighbours.
double scale_at(const Grid& grid, const Matrix& rows, int64_t row, int64_t column) {
  const int64_t share = grid.scale == detail::Scale::kBlock ? grid.block : rows.columns;
  const int64_t first = column / share * share;
  double largest = 0;
  for (int64_t i = first; i < std::min(first + share, rows.columns); ++i)
    largest = std::max(largest, std::fabs(rows.row(row)[i]));
  return largest / (grid.levels > 0 ? static_cast<double>(grid.levels) : grid.largest);
}

}  // namespace

OnGrid hold_to_grid(const Grid& grid, const PrecisionSample& sample, const Matrix& truths,
                    const std::vector<parity::OwnError>& errors) {
  OnGrid out;
  for (int64_t r = 0; r < truths.rows; ++r) {
    const double expected = errors[static_cast<size_t>(r)].expected;
    for (int64_t i = 0; i < truths.columns; ++i) {
      const double truth = truths.row(r)[i];
      const double recorded = sample.recorded().row(r)[i];
      if (!std::isfinite(truth) || !std::isfinite(recorded)) continue;
      const double rounded = nearest(grid, truth);
      // A number of the grid by nature: the true result is one, within its own rounding.
      if (std::fabs(rounded - truth) <= own_share(grid) * std::fabs(truth)) continue;
      ++out.numbers;
      if (nearest(grid, recorded) == recorded) ++out.on;
      if (recorded == rounded) ++out.exact;
      const double beyond = std::fabs(recorded - truth) - spacing(grid, truth) / 2;
      if (std::fabs(recorded - rounded) > 1.01 * spacing(grid, truth) + 4 * expected)
        out.near = false;
      out.worst = std::max(out.worst, beyond / (parity::kElementLimit * expected));
    }
  }
  return out;
}

OnGrid hold_to_scaled_grid(const Grid& grid, const Matrix& rows, const PrecisionSample& sample,
                           const std::vector<parity::OwnError>& errors) {
  OnGrid out;
  int64_t on = 0;
  for (int64_t r = 0; r < rows.rows; ++r)
    on += count_on(grid, {rows.row(r), static_cast<size_t>(rows.columns)});
  if (on < rows.rows * rows.columns) return out;
  for (int64_t r = 0; r < sample.truth().rows; ++r)
    for (int64_t i = 0; i < sample.truth().columns; ++i) {
      const double truth = sample.truth().row(r)[i];
      const double recorded = sample.recorded().row(r)[i];
      if (!std::isfinite(truth) || !std::isfinite(recorded)) continue;
      const double scale = scale_at(grid, rows, r, sample.column(i));
      if (!(scale > 0)) continue;
      const double step = grid.levels > 0 ? scale : scale * spacing(grid, truth / scale);
      const double level = truth / step;
      if (std::fabs(level - std::nearbyint(level)) <= 1e-4) continue;  // on it by nature
      ++out.numbers;
      ++out.on;
      if (std::fabs(recorded - truth) > 0.51 * step + 4 * errors[static_cast<size_t>(r)].expected)
        out.near = false;
    }
  return out;
}

bool is_rounded(const OnGrid& held) {
  return held.near &&
         static_cast<double>(held.exact) >= kMostExact * static_cast<double>(held.numbers);
}

}  // namespace lockstep::doctor
