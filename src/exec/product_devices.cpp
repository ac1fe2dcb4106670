#include "exec/product_devices.h"

#include "exec/cuda/f64/products.h"

namespace lockstep::exec {

Result<std::unique_ptr<f64::Products>> create_products(std::string_view device) {
  if (device == "cpu") return std::make_unique<f64::Products>();
  if (!device.empty() && device != "cuda")
    return error("no device '{}' for comparisons; known: cuda, cpu", device);
  auto made = cuda::create_products();
  if (made.ok()) return std::make_unique<f64::Products>(*std::move(made));
  if (device == "cuda") return made.error();
  return std::make_unique<f64::Products>();
}

}  // namespace lockstep::exec
