// How a factor of a product is rounded before it is multiplied, beyond plain f16 and the like: to
// 8-bit floating point or to whole numbers, times a scale that some numbers share.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/dtype.h"
#include "exec/reference/matrix.h"
#include "lockstep/detail/precision.h"

namespace lockstep::parity {

using detail::Scale;
using exec::reference::Matrix;

struct Operand {
  // Floating point: half the distance between neighbours at 1; 0: it is not.
  double unit = 0;
  double least = 0x1p-126;  // normal number
  bool flushes = true;      // what is smaller may become 0; else it has an absolute error
  bool truncates = false;   // digits may be cut off instead of rounded
  double largest = std::numeric_limits<double>::infinity();  // numbers beyond become this one
  // Whole numbers up to this one; 0: it is not.
  int64_t levels = 0;
  Scale scale = Scale::kNone;
  int64_t block = 0;      // numbers that share a scale, with Scale::kBlock
  double scale_unit = 0;  // of the type in which scales are kept

  bool rounds() const { return unit > 0 || levels > 0; }
  bool is_small_float() const { return unit > 0 && largest < 65504; }            // e4m3, e5m2
  bool is_plain() const { return unit > 0 && !truncates && !is_small_float(); }  // f32, f16, ...
  double tiny() const { return flushes ? least : unit * least; }
  // Relative to numbers of the usual spread.
  double relative() const { return levels > 0 ? 0.64 / static_cast<double>(levels) : unit; }
  // How many of `columns` numbers share a scale.
  int64_t share(int64_t columns) const { return scale == Scale::kBlock ? block : columns; }
};

Operand plain_operand(DType dtype);
Operand plain_operand(double unit_of_type);
Operand operand_of(const detail::PrecisionName& name);

// What rounding does to numbers: exactly, as it is meant (rounded - exact), and by chance.
struct Rounded {
  Matrix errors;
  Matrix variances;

  // Nothing is rounded at all: the numbers are of that type already.
  bool exact = true;

  Rounded() = default;
  Rounded(int64_t rows, int64_t columns) : errors(rows, columns), variances(rows, columns) {}
  // `largest`: of the tensor that the row belongs to, for Scale::kTensor. Different rows may be
  // added by different threads.
  void add(const Operand& operand, std::span<const double> numbers, int64_t row, double largest);
};

double largest_of(std::span<const double> numbers);

// How many times its standard deviation an error of the row is at most.
double largest_deviation(const Rounded& rounded, int64_t row);

// What rounding to a plain type does to a sum of products with others: the sum of error * other.
struct PlainErrors {
  double known = 0;
  bool exact = true;  // the numbers are of that type already
};
PlainErrors plain_errors(const Operand& operand, std::span<const float> numbers,
                         const double* others);

// Whether any of these numbers is none of the type: for floating point without scales.
bool rounds_any(const Operand& operand, std::span<const float> numbers);

// By the largest of each row's tensor; where nothing is given, of the matrix.
Rounded round_rows(const Operand& operand, const Matrix& matrix,
                   std::span<const double> largest = {});

// What rounded factors, from the given one of a row on, do to a sum of products with others: the
// sum of other^2 * variance, and the square of the sum of other * error.
double of_rounded(const Rounded& rounded, int64_t row, int64_t first,
                  std::span<const double> others);

}  // namespace lockstep::parity
