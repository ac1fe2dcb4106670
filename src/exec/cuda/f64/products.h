// Products with weights on the GPU, for judgements: the bits of the CPU's.
#pragma once

#include <memory>

#include "exec/f64/products.h"

namespace lockstep::exec::cuda {

// Memory is taken when there is work to do. No GPU is an error.
Result<std::unique_ptr<f64::ProductDevice>> create_products();

}  // namespace lockstep::exec::cuda
