// Of lockstep/recorder.h: numbers in memory, and a dense copy of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "json.h"

#if __has_include(<cuda_runtime_api.h>)
#include <cuda_runtime_api.h>
#endif

namespace lockstep {

enum class NumberType { kF64, kF32, kF16, kBF16 };

// Numbers in memory. Shapes: [tokens, width], or [heads, tokens, positions] for attention scores
// and probabilities; a single row may be [width]. `logits` may have only the last rows of a step.
struct Values {
  const void* data = nullptr;
  NumberType type = NumberType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides_bytes;  // one a dimension; empty: dense
};

// Copies bytes from another memory to the host once they are there, and returns what went wrong, or
// "". Strides must not be negative then: all from the first number to the last is copied at once.
using CopyToHost = std::function<std::string(void* host, const void* device, size_t bytes)>;

#if __has_include(<cuda_runtime_api.h>)
// For device pointers: waits for what was put into the stream before.
inline CopyToHost copy_from_cuda(cudaStream_t stream = nullptr) {
  return [stream](void* host, const void* device, size_t bytes) -> std::string {
    cudaError_t status = cudaMemcpyAsync(host, device, bytes, cudaMemcpyDefault, stream);
    if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
    return status == cudaSuccess ? "" : cudaGetErrorString(status);
  };
}
#endif

namespace detail {

inline constexpr int64_t kMostBytes = int64_t{1} << 40;  // of a value

struct TypeRow {
  const char* name;    // in the manifest
  const char* stored;  // in safetensors
  int64_t bytes;
};

inline const TypeRow* find_type(NumberType type) {
  static constexpr TypeRow kRows[] = {
      {"f64", "F64", 8}, {"f32", "F32", 4}, {"f16", "F16", 2}, {"bf16", "BF16", 2}};
  const auto index = static_cast<size_t>(type);
  return index < 4 ? &kRows[index] : nullptr;
}

// Any shape as [a, b, c] with strides.
struct Grid {
  int64_t extent[3] = {1, 1, 1};
  int64_t stride[3] = {0, 0, 0};
  int64_t number_bytes = 0;
  size_t bytes = 0;  // of all numbers
  size_t reach = 0;  // from the first number to the end of the last, where `forward`
  bool dense = true;
  bool forward = true;  // no stride is negative
};

// What is wrong with the type, the shape or the strides; "" where nothing is.
inline std::string read_grid(const Values& values, Grid* grid) {
  if (values.data == nullptr) return "found a null pointer";
  const TypeRow* type = find_type(values.type);
  if (type == nullptr) return "found an unknown type of numbers";
  const size_t rank = values.shape.size();
  const std::string shape = "shape " + json_array(values.shape);
  if (rank < 1 || rank > 3) return shape + ": expected 1 to 3 dimensions";
  if (!values.strides_bytes.empty() && values.strides_bytes.size() != rank)
    return shape + ": found the strides " + json_array(values.strides_bytes);
  grid->number_bytes = type->bytes;
  int64_t dense = type->bytes;
  int64_t reach = type->bytes;
  for (size_t d = rank; d-- > 0;) {
    const int64_t extent = values.shape[d];
    const int64_t stride = values.strides_bytes.empty() ? dense : values.strides_bytes[d];
    if (extent < 1 || extent > kMostBytes / dense)
      return shape + ": expected sizes from 1 on, and 2^40 bytes at most";
    if (extent > 1) {
      const int64_t most = kMostBytes / (extent - 1);
      if (stride > most || stride < -most)
        return "strides " + json_array(values.strides_bytes) + ": reach beyond 2^40 bytes";
      grid->dense = grid->dense && stride == dense;
      grid->forward = grid->forward && stride >= 0;
      reach += (extent - 1) * stride;
    }
    grid->extent[d + 3 - rank] = extent;
    grid->stride[d + 3 - rank] = extent > 1 ? stride : dense;
    dense *= extent;
  }
  grid->bytes = static_cast<size_t>(dense);
  grid->reach = static_cast<size_t>(reach);
  return "";
}

inline void gather(const Grid& grid, const char* from, char* to) {
  if (grid.dense) {
    std::memcpy(to, from, grid.bytes);
    return;
  }
  const int64_t size = grid.number_bytes;
  const int64_t row_bytes = grid.extent[2] * size;
  for (int64_t a = 0; a < grid.extent[0]; ++a)
    for (int64_t b = 0; b < grid.extent[1]; ++b, to += row_bytes) {
      const char* row = from + a * grid.stride[0] + b * grid.stride[1];
      if (grid.stride[2] == size)
        std::memcpy(to, row, static_cast<size_t>(row_bytes));
      else
        for (int64_t c = 0; c < grid.extent[2]; ++c)
          std::memcpy(to + c * size, row + c * grid.stride[2], static_cast<size_t>(size));
    }
}

// The numbers side by side; null where `problem` says why not.
inline std::unique_ptr<char[]> dense_copy(const void* data, const Grid& grid,
                                          const CopyToHost& copy, std::string* problem) {
  const auto* from = static_cast<const char*>(data);
  std::unique_ptr<char[]> out(new char[grid.bytes]);
  if (!copy) {
    gather(grid, from, out.get());
  } else if (grid.dense) {
    *problem = copy(out.get(), from, grid.bytes);
  } else if (!grid.forward) {
    *problem = "found negative strides in the memory of a device";
  } else {
    std::unique_ptr<char[]> all(new char[grid.reach]);
    *problem = copy(all.get(), from, grid.reach);
    if (problem->empty()) gather(grid, all.get(), out.get());
  }
  return problem->empty() ? std::move(out) : nullptr;
}

}  // namespace detail
}  // namespace lockstep
