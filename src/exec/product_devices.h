// What multiplies with weights in a judgement.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "exec/f64/products.h"

namespace lockstep::exec {

// "cuda" or "cpu". An empty name: the GPU where there is one, else the CPU.
Result<std::unique_ptr<f64::Products>> create_products(std::string_view device);

}  // namespace lockstep::exec
