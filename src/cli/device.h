// The flags that say what runs a model, and how.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "exec/registry.h"

namespace lockstep::cli {

struct DeviceFlags {
  std::string name;  // empty: the fastest
  int threads = 0;
  std::string kv = "f16";
  bool no_repack = false;
};

void declare_device(CLI::App& app, DeviceFlags& flags);
exec::Options options_of(const DeviceFlags& flags);

}  // namespace lockstep::cli
