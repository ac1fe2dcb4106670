// The numbers that coarse types have, with or without a scale that some numbers share: what a row
// becomes when an engine rounds it, and whether recorded numbers are such numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/detail/precision.h"

namespace lockstep::doctor {

struct Grid {
  std::string name;         // as manifests have it: "bf16", "int8:block32", "q8_0"
  int fraction = 0;         // bits; whole numbers have none
  int least = -126;         // exponent of the smallest normal number
  double largest = 0;       // beyond is this number; 0: beyond is infinite
  int64_t levels = 0;       // whole numbers up to this one; 0: floating point
  bool cut = false;         // digits are cut off, not rounded
  bool half_scale = false;  // the scale is kept in half precision
  detail::Scale scale = detail::Scale::kNone;
  int64_t block = 0;

  bool plain() const { return scale == detail::Scale::kNone; }
};

// Without a scale, from coarse to fine: the numbers of one are often numbers of the next too.
std::span<const Grid> plain_grids();
// With a scale.
std::span<const Grid> scaled_grids();
// f16, bf16 and tf32, which engines compute with.
std::span<const Grid> common_grids();
const Grid& single_grid();  // f32

// The number of a plain grid that stands for x.
double nearest(const Grid& grid, double x);

// Distance of neighbours at x, of a plain grid.
double spacing(const Grid& grid, double x);

// A row as an engine rounds it, in single precision. `largest`: of the whole tensor.
void round_row(const Grid& grid, std::span<double> row, double largest);

// How many numbers of a row are on a grid. With a scale, blocks in which not all numbers are have
// none.
int64_t count_on(const Grid& grid, std::span<const double> row);

}  // namespace lockstep::doctor
