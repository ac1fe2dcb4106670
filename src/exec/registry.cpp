#include "exec/registry.h"

#include "exec/cpu/executor.h"
#include "exec/cuda/executor.h"
#include "exec/reference/executor.h"

namespace lockstep::exec {
namespace {

Result<void> always() {
  return {};
}

Result<Bandwidth> host_bandwidth(int threads) {
  return measure_read_bandwidth(threads);
}

constexpr Device kDevices[] = {
    {"cuda", "an NVIDIA GPU; quantized weights meet activations of 16 bits", false, cuda::available,
     cuda::create, cuda::read_bandwidth},
    {"cpu", "single precision, for speed; quantized weights meet 16-bit activations", true, always,
     cpu::create, host_bandwidth},
    {"reference", "double precision: the truth that others are judged by; on the GPU where it fits",
     true, always, reference::create, host_bandwidth},
    {"reference-cpu", "the same, always on the CPU", true, always, reference::create_on_cpu,
     host_bandwidth},
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
