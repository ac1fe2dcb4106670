#include "exec/registry.h"

#include "exec/cpu/executor.h"
#include "exec/cuda/executor.h"
#include "exec/reference/executor.h"

namespace lockstep::exec {
namespace {

Result<void> always() {
  return {};
}

constexpr Device kDevices[] = {
    {"cuda", "an NVIDIA GPU; single precision, quantized weights meet 16-bit activations",
     cuda::available, cuda::create},
    {"cpu", "single precision, for speed; quantized weights meet 16-bit activations", always,
     cpu::create},
    {"reference", "double precision, obvious code: the truth that others are judged by", always,
     reference::create},
};

}  // namespace

std::span<const Device> devices() {
  return kDevices;
}

Result<const Device*> find_device(std::string_view name) {
  std::string known;
  for (const Device& device : kDevices) {
    if (name.empty() ? device.available().ok() : device.name == name) return &device;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", device.name);
  }
  return error("no device '{}'; known: {}", name, known);
}

}  // namespace lockstep::exec
