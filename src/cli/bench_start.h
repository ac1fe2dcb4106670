// lockstep bench --start: how long it takes from the start of the program to a first token.
#pragma once

#include <string>

#include "cli/device.h"

namespace lockstep::cli {

struct StartBench {
  std::string model;
  int64_t prompt_tokens = 0;
  int64_t repeats = 1;
  DeviceFlags device;
  bool json = false;
};

Result<int> bench_start(const StartBench& bench);

}  // namespace lockstep::cli
