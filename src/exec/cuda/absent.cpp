// Stands for the executor in builds without CUDA.
#include "exec/cuda/executor.h"
#include "exec/cuda/f64/executor.h"
#include "exec/cuda/f64/products.h"

namespace lockstep::exec::cuda {

Result<void> available() {
  return error("this build has no CUDA part: it was made where nvcc was not found");
}

Result<Bandwidth> read_bandwidth(int) {
  return available().error();
}

Result<std::unique_ptr<Executor>> create(const op::Program&, const Options&) {
  return available().error();
}

Result<std::unique_ptr<Executor>> create_reference(const op::Program&) {
  return available().error();
}

Result<std::unique_ptr<f64::ProductDevice>> create_products() {
  return available().error();
}

}  // namespace lockstep::exec::cuda
