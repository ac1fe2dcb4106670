#include "doctor/grids.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/float16.h"

namespace lockstep::doctor {
namespace {

using detail::Scale;

const Grid kE5M2{.name = "e5m2", .fraction = 2, .least = -14, .largest = 57344};
const Grid kE4M3{.name = "e4m3", .fraction = 3, .least = -6, .largest = 448};
const Grid kBfloat{.name = "bf16", .fraction = 7};
const Grid kHalf{.name = "f16", .fraction = 10, .least = -14};
const Grid kTf32{.name = "tf32", .fraction = 10};
const Grid kSingle{.name = "f32", .fraction = 23};

std::vector<Grid> make_scaled() {
  std::vector<Grid> out;
  const auto add = [&](Grid grid, Scale scale, int64_t block) {
    grid.scale = scale;
    grid.block = block;
    grid.name += scale == Scale::kTensor ? ":tensor"
                 : scale == Scale::kRow  ? ":row"
                                         : ":block" + std::to_string(block);
    out.push_back(grid);
  };
  const Grid whole{.name = "int8", .levels = 127};
  // What llama.cpp and others of its kind do before products with quantized weights.
  out.push_back(
      {.name = "q8_0", .levels = 127, .half_scale = true, .scale = Scale::kBlock, .block = 32});
  for (const Grid& grid : {whole, kE4M3, kE5M2}) {
    add(grid, Scale::kRow, 0);
    for (const int64_t block : {8, 16, 32, 64, 128, 256}) add(grid, Scale::kBlock, block);
    add(grid, Scale::kTensor, 0);
  }
  return out;
}

double on_levels(const Grid& grid, double scaled) {
  if (grid.levels == 0) return nearest(grid, scaled);
  const auto most = static_cast<double>(grid.levels);
  return std::clamp(std::nearbyint(scaled), -most, most);
}

int64_t share_of(const Grid& grid, size_t width) {
  return grid.scale == Scale::kBlock ? grid.block : static_cast<int64_t>(width);
}

double largest_number(std::span<const double> numbers) {
  double out = 0;
  for (const double x : numbers)
    if (std::isfinite(x)) out = std::max(out, std::fabs(x));
  return out;
}

// Whole numbers or 8-bit floats times a scale which makes the largest number the type's largest.
bool all_on(const Grid& grid, std::span<const double> some) {
  const double most = grid.levels > 0 ? static_cast<double>(grid.levels) : grid.largest;
  const double step = largest_number(some) / most;
  if (!(step > 0)) return true;
  return std::ranges::all_of(some, [&](double x) {
    const double scaled = x / step;
    // Scale and product were rounded to single precision.
    return std::fabs(scaled - on_levels(grid, scaled)) <= 4e-7 * std::max(1.0, std::fabs(scaled));
  });
}

}  // namespace

std::span<const Grid> plain_grids() {
  static const std::vector<Grid> all = {kE5M2, kE4M3, kBfloat, kHalf, kTf32};
  return all;
}

std::span<const Grid> scaled_grids() {
  static const std::vector<Grid> all = make_scaled();
  return all;
}

std::span<const Grid> common_grids() {
  static const std::vector<Grid> all = [] {
    std::vector<Grid> out = {kHalf, kBfloat, kTf32};
    out.push_back(kTf32);
    out.back().cut = true;
    return out;
  }();
  return all;
}

const Grid& single_grid() {
  return kSingle;
}

double spacing(const Grid& grid, double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1, std::max(exponent - 1, grid.least) - grid.fraction);
}

double nearest(const Grid& grid, double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double step = spacing(grid, x);
  const double out = step * (grid.cut ? std::trunc(x / step) : std::nearbyint(x / step));
  if (grid.largest > 0 && std::fabs(out) > grid.largest) return std::copysign(grid.largest, x);
  if (grid.least == -14 && std::fabs(out) > 65504)
    return std::copysign(std::numeric_limits<double>::infinity(), x);
  return out;
}

void round_row(const Grid& grid, std::span<double> row, double largest) {
  if (grid.plain()) {
    for (double& x : row) x = nearest(grid, x);
    return;
  }
  const int64_t share = share_of(grid, row.size());
  for (int64_t first = 0; first < std::ssize(row); first += share) {
    const auto some = row.subspan(static_cast<size_t>(first),
                                  static_cast<size_t>(std::min(share, std::ssize(row) - first)));
    const double size = grid.scale == Scale::kTensor ? largest : largest_number(some);
    const double most = grid.levels > 0 ? static_cast<double>(grid.levels) : grid.largest;
    const float step = static_cast<float>(size) / static_cast<float>(most);
    if (!(step > 0)) continue;
    const float kept = grid.half_scale ? half_to_float(float_to_half(step)) : step;
    for (double& x : some) {
      // Engines with scales in half precision multiply by the inverse.
      const float scaled =
          grid.half_scale ? static_cast<float>(x) * (1 / step) : static_cast<float>(x) / step;
      x = on_levels(grid, static_cast<double>(scaled)) * static_cast<double>(kept);
    }
  }
}

int64_t count_on(const Grid& grid, std::span<const double> row) {
  if (grid.plain())
    return std::ranges::count_if(row, [&](double x) { return nearest(grid, x) == x; });
  if (grid.scale == Scale::kTensor) return 0;  // the rest of the tensor is not here
  int64_t out = 0;
  const int64_t share = share_of(grid, row.size());
  for (int64_t first = 0; first < std::ssize(row); first += share) {
    const auto some = row.subspan(static_cast<size_t>(first),
                                  static_cast<size_t>(std::min(share, std::ssize(row) - first)));
    if (all_on(grid, some)) out += std::ssize(some);
  }
  return out;
}

}  // namespace lockstep::doctor
