#include "cli/device.h"

#include "cli/options.h"

namespace lockstep::cli {

void declare_device(CLI::App& app, DeviceFlags& flags) {
  std::string names;
  for (const exec::Device& device : exec::devices())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", device.name);
  add_value(
      app, "--device", flags.name, kDevice,
      fmt::format("What runs it: {} (default: the first of these that the machine has)", names));
  add_threads(app, flags.threads);
  add_value(app, "--kv", flags.kv, kKvType,
            "Numbers in the KV cache: f16 (default) or f32 (default where no weight is quantized); "
            "not of reference");
  app.add_flag("--no-repack", flags.no_repack,
               "Use the weights as they lie in the file: less memory, slower; cpu only");
  app.add_flag(
      "--no-pin", flags.no_pin,
      "Let the system move threads from core to core; cpu only. Else each stays on a core, "
      "unless another lockstep has that core");
  app.add_flag(
      "--no-mmap", flags.no_map,
      "Read the model file into memory, so that it may change meanwhile; else it is mapped");
}

Result<const exec::Device*> find_device(const DeviceFlags& flags) {
  LS_TRY(const exec::Device* device, exec::find_device(flags.name));
  if (device->name != "cpu" && flags.no_repack)
    return error("--no-repack is for the device cpu; this is {}", device->name);
  if (device->name != "cpu" && flags.no_pin)
    return error("--no-pin is for the device cpu; this is {}", device->name);
  if (device->name.starts_with("reference") && !flags.kv.empty())
    return error("--kv is not for the device {}, which computes in double precision", device->name);
  return device;
}

exec::Options options_of(const DeviceFlags& flags) {
  exec::Options out{.threads = flags.threads, .pin = !flags.no_pin, .repack = !flags.no_repack};
  if (!flags.kv.empty()) out.kv = flags.kv == "f32" ? DType::kF32 : DType::kF16;
  return out;
}

}  // namespace lockstep::cli
