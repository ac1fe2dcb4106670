#include "exec/registry.h"

#include "exec/cpu/executor.h"
#include "exec/reference/executor.h"

namespace lockstep::exec {
namespace {

constexpr Device kDevices[] = {
    {"cpu", "single precision, for speed; quantized weights meet 16-bit activations", cpu::create},
    {"reference", "double precision, obvious code: the truth that others are judged by",
     reference::create},
};

}  // namespace

std::span<const Device> devices() {
  return kDevices;
}

Result<const Device*> find_device(std::string_view name) {
  if (name.empty()) return &kDevices[0];
  std::string known;
  for (const Device& device : kDevices) {
    if (device.name == name) return &device;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", device.name);
  }
  return error("no device '{}'; known: {}", name, known);
}

}  // namespace lockstep::exec
