// Products of matrices of halves on the tensor cores, by cuBLASLt. The library is looked for when
// the program runs: where it is missing, prompts are slower and nothing else changes.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "exec/cuda/shared/memory.h"

namespace lockstep::exec::cuda {

class Blas {
 public:
  // Nothing where the library cannot be loaded.
  static std::unique_ptr<Blas> load();
  ~Blas();

  // out[t] = *alpha * weight · x[t] + bias, added to what is there or in its place.
  // weight [rows, columns] and x [tokens, columns] of halves, out [tokens, rows] of floats; the
  // bias may be null.
  Result<void> multiply(const void* weight, const void* x, const float* bias, float* out,
                        int64_t rows, int64_t columns, int64_t tokens, const float* alpha, bool add,
                        cudaStream_t stream);

 private:
  struct Library;
  struct Shape;
  Blas();
  Result<const Shape*> shape(int64_t rows, int64_t columns, int64_t tokens, bool bias);

  std::unique_ptr<Library> library_;
  DeviceMemory workspace_;
  DeviceMemory constants_;  // 0 and 1
  std::map<std::tuple<int64_t, int64_t, int64_t, bool>, std::unique_ptr<Shape>> shapes_;
};

}  // namespace lockstep::exec::cuda
