// Products of matrices of halves on the tensor cores, by cuBLASLt. The library is looked for when
// the program runs: where it is missing, prompts are slower and nothing else changes.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "exec/cuda/shared/memory.h"

namespace lockstep::exec::cuda {

class Blas {
 public:
  // Nothing where the library cannot be loaded. It takes a tenth of a second, or more.
  static std::unique_ptr<Blas> load();
  ~Blas();

  // out[t] = *alpha * weight · x[t] + bias, for `count` weights that lie one after another.
  struct Product {
    const void* weight = nullptr;  // halves [count, rows, columns]
    const void* x = nullptr;       // halves [tokens, columns], x_stride from row to row
    const float* bias = nullptr;   // may be null
    float* out = nullptr;          // [tokens, rows]
    const float* alpha = nullptr;  // on the device
    int64_t rows = 0, columns = 0, tokens = 0, x_stride = 0, count = 1;
    int64_t bias_stride = 0, out_stride = 0;  // from weight to weight, in floats
  };
  Result<void> multiply(const Product& product, cudaStream_t stream);

 private:
  struct Library;
  struct Shape;
  Blas();
  Result<void> warm_up();
  Result<const Shape*> shape(const Product& product);

  std::unique_ptr<Library> library_;
  DeviceMemory workspace_;
  DeviceMemory zero_;
  std::map<std::array<int64_t, 8>, std::unique_ptr<Shape>> shapes_;
};

}  // namespace lockstep::exec::cuda
