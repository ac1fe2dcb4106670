#include "parity/operand.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "parity/rounding.h"
#include "parity/term_statistics.h"
#include "parity/wide.h"

namespace lockstep::parity {
namespace {

// The power of two at or below x, which is normal.
double power_below(double x) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0x7ff0'0000'0000'0000u);
}

// The number of the type that stands for x.
double to_float(double x, const Operand& to) {
  const double size = std::fabs(x);
  if (size >= to.largest) return std::copysign(to.largest, x);
  if (to.flushes && size < to.least) return 0;
  const double step = 2 * to.unit * std::max(power_below(x), to.least);
  if (to.truncates) return step * std::trunc(x / step);
  // Beside this number doubles are one step apart.
  const double beside = 0x1.8p52 * step;
  return std::isfinite(beside) ? (x + beside) - beside : x;
}

// Rounded::add for plain types, which are most, without branches.
LS_WIDE bool add_plain(const Operand& to, const double* numbers, int64_t count, double* errors,
                       double* variances) {
  const double of_tiny = square(to.tiny());
  const double flushed = to.flushes ? to.least : 0;
  const double unit = to.unit;
  const double least = to.least;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  uint64_t rounded = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double x = numbers[i];
    const double power = power_below(x);
    const double step = 2 * unit * (power < least ? least : power);
    const double beside = 0x1.8p52 * step;
    double to_type = beside < kInfinity ? (x + beside) - beside : x;
    to_type = std::fabs(x) < flushed ? 0 : to_type;
    double error = to_type - x;
    error = error - error == 0 ? error : 0;
    rounded |= error != 0 ? 1 : 0;
    errors[i] += error;
    variances[i] += (square(x * unit) + of_tiny) / 3;
  }
  return rounded != 0;
}

// Rounded::add for whole numbers times `step`, which is not 0. Whether any number changed.
LS_WIDE bool add_whole(const double* numbers, int64_t count, double step, double* errors,
                       double* variances) {
  constexpr double kBeside = 0x1.8p52;  // beside it doubles are whole numbers
  const double variance = step * step / 12;
  uint64_t rounded = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double x = numbers[i];
    double error = step * ((x / step + kBeside) - kBeside) - x;
    error = error - error == 0 ? error : 0;
    rounded |= error != 0 ? 1 : 0;
    errors[i] += error;
    variances[i] += variance;
  }
  return rounded != 0;
}

// Of those that are finite.
LS_WIDE void find_largest(const double* numbers, size_t count, double* lanes) {
  const TermLanes zero = {};
  TermLanes largest = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    LS_LOAD(x, numbers + i, count - i);
    const TermLanes size = LS_SIZES(x);
    const TermLanes finite = size - size == zero ? size : zero;
    largest = finite > largest ? finite : largest;
  }
  std::memcpy(lanes, &largest, sizeof largest);
}

LS_WIDE void find_largest_deviation(const double* errors, const double* variances, size_t count,
                                    double* lanes) {
  const TermLanes zero = {};
  TermLanes largest = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    LS_LOAD(error, errors + i, count - i);
    LS_LOAD(variance, variances + i, count - i);
    const TermLanes square_of = error * error / variance;
    const TermLanes counted = error == zero ? zero : square_of;
    largest = counted > largest ? counted : largest;
  }
  std::memcpy(lanes, &largest, sizeof largest);
}

using FloatLanes = float __attribute__((vector_size(kTermLanes * sizeof(float))));

// Sums of the errors times others, and of their sizes.
LS_WIDE void add_plain_errors(const Operand& to, const float* numbers, const double* others,
                              size_t count, double* known, double* sizes) {
  const TermLanes zero = {};
  const TermLanes least = zero + to.least;
  const TermLanes flushed = zero + (to.flushes ? to.least : 0);
  const double spacing = 0x1.8p53 * to.unit;
  TermLanes sums = {};
  TermLanes all_sizes = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    const size_t left = count - i;
    FloatLanes floats = {};
    if (left >= kTermLanes) {
      std::memcpy(&floats, numbers + i, sizeof floats);
    } else {
      for (size_t j = 0; j < left; ++j) floats[j] = numbers[i + j];
    }
    const TermLanes x = __builtin_convertvector(floats, TermLanes);
    LS_LOAD(other, others + i, left);
    const auto power =
        reinterpret_cast<TermLanes>(reinterpret_cast<TermBits>(x) & 0x7ff0'0000'0000'0000LL);
    const TermLanes beside = spacing * (power < least ? least : power);
    TermLanes rounded = (x + beside) - beside;
    rounded = LS_SIZES(x) < flushed ? zero : rounded;
    TermLanes error = rounded - x;
    error = error - error == zero ? error : zero;
    sums += other * error;
    all_sizes += LS_SIZES(error);
  }
  std::memcpy(known, &sums, sizeof sums);
  std::memcpy(sizes, &all_sizes, sizeof all_sizes);
}

}  // namespace

PlainErrors plain_errors(const Operand& operand, std::span<const float> numbers,
                         const double* others) {
  double known[kTermLanes];
  double sizes[kTermLanes];
  add_plain_errors(operand, numbers.data(), others, numbers.size(), known, sizes);
  return {sum_of(known), sum_of(sizes) == 0};
}

double largest_of(std::span<const double> numbers) {
  double lanes[kTermLanes];
  find_largest(numbers.data(), numbers.size(), lanes);
  return *std::ranges::max_element(lanes);
}

double largest_deviation(const Rounded& rounded, int64_t row) {
  double lanes[kTermLanes];
  find_largest_deviation(rounded.errors.row(row), rounded.variances.row(row),
                         static_cast<size_t>(rounded.errors.columns), lanes);
  return std::sqrt(*std::ranges::max_element(lanes));
}

bool rounds_any(const Operand& operand, std::span<const float> numbers) {
  return std::ranges::any_of(numbers, [&](float number) {
    const auto x = static_cast<double>(number);
    return std::isfinite(to_float(x, operand) - x) && to_float(x, operand) != x;
  });
}

Operand plain_operand(DType dtype) {
  Operand out;
  out.unit = unit(dtype);
  if (dtype == DType::kF64) out.least = std::numeric_limits<double>::min();
  if (dtype != DType::kF16) return out;
  out.least = 0x1p-14;
  out.flushes = false;
  return out;
}

Operand plain_operand(double unit_of_type) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16})
    if (unit(dtype) == unit_of_type) return plain_operand(dtype);
  return plain_operand(DType::kBF16);
}

Operand operand_of(const detail::PrecisionName& name) {
  Operand out;
  if (const auto dtype = trace::find_dtype(name.type)) return plain_operand(*dtype);
  out.scale = name.scale;
  out.block = name.block;
  // Engines keep the scales of 8-bit numbers in half precision, or better.
  if (name.scale != Scale::kNone) out.scale_unit = unit(DType::kF16);
  if (name.type == "int8") out.levels = kInt8Levels;
  if (name.type == "tf32") {
    // Tensor cores read as many digits as the type has, whether somebody rounded them or not.
    out.unit = 0x1p-11;
    out.truncates = true;
  }
  if (name.type == "e4m3") {
    out.unit = 0x1p-4;
    out.least = 0x1p-6;
    out.largest = 448;
    out.flushes = false;
  }
  if (name.type == "e5m2") {
    out.unit = 0x1p-3;
    out.least = 0x1p-14;
    out.largest = 57344;
    out.flushes = false;
  }
  return out;
}

void Rounded::add(const Operand& operand, std::span<const double> numbers, int64_t row,
                  double largest) {
  const auto columns = static_cast<int64_t>(numbers.size());
  if (operand.is_plain() && operand.scale == Scale::kNone) {
    if (add_plain(operand, numbers.data(), columns, errors.row(row), variances.row(row)))
      std::atomic_ref(exact).store(false, std::memory_order_relaxed);
    return;
  }
  const int64_t share = std::max<int64_t>(1, operand.share(columns));
  bool all_exact = true;
  for (int64_t first = 0; first < columns; first += share) {
    const auto some = numbers.subspan(static_cast<size_t>(first),
                                      static_cast<size_t>(std::min(share, columns - first)));
    const double size = operand.scale == Scale::kTensor ? largest : largest_of(some);
    const double step = size / static_cast<double>(std::max<int64_t>(1, operand.levels));
    const double scale = operand.scale == Scale::kNone ? 1 : size / operand.largest;
    if (operand.levels > 0) {
      if (step > 0 && add_whole(some.data(), std::ssize(some), step, errors.row(row) + first,
                                variances.row(row) + first))
        all_exact = false;
      continue;
    }
    for (size_t i = 0; i < some.size(); ++i) {
      const double x = some[i];
      double error = 0;
      double variance = 0;
      if (scale > 0) {
        error = scale * to_float(x / scale, operand) - x;
        variance = (square(x * operand.unit) + square(scale * operand.tiny())) / 3;
      }
      if (!std::isfinite(error)) error = 0;
      all_exact = all_exact && error == 0;
      errors.row(row)[first + static_cast<int64_t>(i)] += error;
      variances.row(row)[first + static_cast<int64_t>(i)] += variance;
    }
  }
  if (!all_exact) std::atomic_ref(exact).store(false, std::memory_order_relaxed);
}

Rounded round_rows(const Operand& operand, const Matrix& matrix, std::span<const double> largest) {
  Rounded out(matrix.rows, matrix.columns);
  const double of_all =
      operand.scale == Scale::kTensor && largest.empty() ? largest_of(matrix.values) : 0;
  for (int64_t r = 0; r < matrix.rows; ++r)
    out.add(operand, {matrix.row(r), static_cast<size_t>(matrix.columns)}, r,
            largest.empty() ? of_all : largest[static_cast<size_t>(r)]);
  return out;
}

double of_rounded(const Rounded& rounded, int64_t row, int64_t first,
                  std::span<const double> others) {
  return with_known(sum_of_squares_times(others, rounded.variances.row(row) + first),
                    sum_of_products(others, rounded.errors.row(row) + first));
}

}  // namespace lockstep::parity
