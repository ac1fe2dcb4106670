// Products of matrices, for one kind of machine each (target_*.cpp).
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::exec::f64 {

// Rows of a weight that are worked on together.
inline constexpr int64_t kPanel = 32;

// In double precision, by the operations of exec/reference/sums.h in their order, so that the bits
// are those of the plain code: each product has kLanes running sums, by the number of the column,
// and after kBlock columns these go into sums that lose nothing.
inline constexpr int64_t kLanes = 8;
inline constexpr int64_t kBlock = 32 * kLanes;

// Columns of the estimates in single precision after which partial sums are looked at.
inline constexpr int64_t kEstimateBlock = 64;

// Sums that are estimated together where few are wanted.
inline constexpr int64_t kFewSums = 4;

struct Operands {
  const double* w;  // kPanel rows; null: these, which is quicker for few rows of x
  const float* singles;
  int64_t w_stride;
  const double* x;
  int64_t x_stride;
  int64_t x_rows;
  int64_t columns;  // a multiple of kLanes, at most kBlock
  // Every product of two numbers fits into a double: then it may be fused with the addition.
  bool exact_products;
  bool first;  // of the columns: the sums begin here
};

// Of a product whose last bits do not matter. `w`: [columns, kPanel].
struct QuickOperands {
  const double* w;
  const double* x;
  int64_t x_stride;
  int64_t x_rows;
  int64_t columns;
  bool first;  // of the columns: the sums begin here
};

// Of a panel's rows times rows of x, [x_rows, kPanel] each.
struct EstimatedSums {
  float* sum;
  // Of the sums after each block, and of their squares; null: not wanted.
  float* partial = nullptr;
  float* partial_squares = nullptr;
};

struct Kernels {
  const char* name;
  bool (*supported)();

  // Adds to the running sums and to what their additions lost, [x_rows, kPanel, kLanes] each.
  void (*add)(const Operands& operands, double* sums, double* lost);

  // The products from their running sums, of which there are a multiple of kLanes.
  void (*finish)(const double* sums, const double* lost, int64_t count, double* out);

  // Adds to the products, [x_rows, kPanel], in the order of the columns whatever the rows.
  void (*add_quickly)(const QuickOperands& operands, double* sums);

  // Floats as doubles, or their squares; `count`: a multiple of kLanes.
  void (*widen)(const float* from, int64_t count, bool squared, double* to);

  // kPanel rows, `stride` apart, as columns: [columns, kPanel].
  void (*transpose)(const float* rows, int64_t stride, int64_t columns, float* to);

  // `w`: [blocks, kEstimateBlock, kPanel]; `x`: [blocks, rows, kEstimateBlock].
  void (*estimate)(const float* w, const float* x, int64_t blocks, int64_t rows,
                   const EstimatedSums& out);

  // A few of these sums alone: a row of a weight, with zeros up to a multiple of 16 columns, times
  // kFewSums rows of `x`, whose blocks are `step` apart.
  void (*estimate_few)(const float* w, int64_t columns, const float* const* x, int64_t step,
                       float* sums);
};

// The best of this machine.
const Kernels& kernels();
// All that were built, the best first.
std::span<const Kernels* const> all_kernels();

}  // namespace lockstep::exec::f64
