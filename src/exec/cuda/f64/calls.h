// What the kernels in double precision take, and their starts. Results have the bits of exec/f64/,
// whatever the number of rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "base/host_device.h"
#include "exec/f64/kernels/kernels.h"
#include "quant/format.h"

namespace lockstep::exec::cuda {

// Columns of decoded weights and of rows are filled up with zeros to a multiple of this.
inline constexpr int64_t kColumnStep = f64::kEstimateBlock;
LS_HD constexpr int64_t padded_columns(int64_t columns) {
  return (columns + kColumnStep - 1) / kColumnStep * kColumnStep;
}

// Rows of a weight, as they lie in the file, to floats: [rows, padded_columns(columns)]. With
// `chosen`, the rows of those numbers.
struct DecodeCall {
  quant::Format format{};
  const std::byte* blocks = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  const int64_t* chosen = nullptr;
  float* out = nullptr;
};
void run_decode(const DecodeCall& call, cudaStream_t stream);

// out[t] = w · x[t], and the bias where there is one.
struct DoubleProductCall {
  const float* w = nullptr;  // [w_rows, columns]
  int64_t w_rows = 0;
  const double* x = nullptr;  // [x_rows, columns]
  int64_t x_rows = 0;
  int64_t columns = 0;  // padded
  bool exact = false;   // every product fits into a double
  bool squared = false;
  const float* bias = nullptr;  // [w_rows]
  double* out = nullptr;        // [x_rows, out_stride]
  int64_t out_stride = 0;
};
void run_double_product(const DoubleProductCall& call, cudaStream_t stream);

// Sums of the squares of `together` columns each: [rows, padded_columns(sums)].
void run_sums_of_squares(const float* w, int64_t rows, int64_t columns, int64_t together,
                         float* out, cudaStream_t stream);

// In single precision, with sums after each block of kEstimateBlock columns.
struct EstimateCall {
  const float* w = nullptr;  // [w_rows, blocks * kEstimateBlock]
  int64_t w_rows = 0;
  const float* x = nullptr;  // [blocks, x_rows, kEstimateBlock]
  int64_t x_rows = 0;
  int64_t blocks = 0;
  bool squared = false;    // the squares of w
  f64::EstimatedSums out;  // [x_rows, out_stride] each
  int64_t out_stride = 0;
};
void run_estimate(const EstimateCall& call, cudaStream_t stream);

}  // namespace lockstep::exec::cuda
