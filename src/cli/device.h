// The flags that say what runs a model, and how.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "exec/registry.h"

namespace lockstep::cli {

struct DeviceFlags {
  std::string name;  // empty: the fastest
  int threads = 0;
  std::string kv = "";  // empty: by the device
  bool no_repack = false;
  bool no_map = false;
  bool no_pin = false;
};

void declare_device(CLI::App& app, DeviceFlags& flags);
// The device of that name. Flags that it would not heed are an error.
Result<const exec::Device*> find_device(const DeviceFlags& flags);
exec::Options options_of(const DeviceFlags& flags);

}  // namespace lockstep::cli
