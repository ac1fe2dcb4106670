// Other programs that may hang, crash or take all memory: they get so much and no more.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep {

struct ProcessLimits {
  double seconds = 0;              // 0: none
  int64_t memory_bytes = 0;        // of all its processes, without mapped files; 0: none
  int64_t output_bytes = 1 << 16;  // of its output that are kept: the first and the last half
  // File that standard output goes to; empty: it is kept with standard error.
  std::string output_file = {};
  std::string without_variable = {};  // of the environment, which the program does not get
};

enum class ProcessEnd { kExited, kSignal, kTime, kMemory, kCancelled };

struct LimitedOutcome {
  ProcessEnd end = ProcessEnd::kExited;
  int status = 0;        // of the exit, or the signal
  std::string output;    // standard output and standard error, as they came
  int64_t left_out = 0;  // bytes of it that were not kept

  bool succeeded() const { return end == ProcessEnd::kExited && status == 0; }
};

// `arguments[0]` is the program, looked up in PATH where it has no slash. It has a process group of
// its own, which does not outlive the call, none of our open files, and nothing to read. `cancel`
// ends it.
Result<LimitedOutcome> run_limited(const std::vector<std::string>& arguments,
                                   const ProcessLimits& limits,
                                   const std::atomic<bool>* cancel = nullptr);

// "ended with exit status 3", "was ended by signal 11 (Segmentation fault)", "took longer than
// 2.5 s", ...
std::string describe(const LimitedOutcome& outcome, const ProcessLimits& limits);

}  // namespace lockstep
