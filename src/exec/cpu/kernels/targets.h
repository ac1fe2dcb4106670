// The kinds of machine that there are kernels for, best first; one is chosen at run time.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "exec/cpu/kernels/kernels.h"

namespace lockstep::exec::cpu {

struct Target {
  std::string_view name;
  std::string_view needs;  // what the machine must have
  bool (*supported)();
  const Kernels* kernels;
};

std::span<const Target> targets();

// The best one that runs here, or the one that the environment variable LOCKSTEP_CPU_TARGET names.
Result<const Target*> choose_target();

}  // namespace lockstep::exec::cpu
