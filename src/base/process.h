// Other programs: started with a list of arguments, never through a shell.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep {

struct ProcessOutcome {
  int status = 0;      // of its exit; 128 and the signal where one ended it
  std::string output;  // what it wrote to standard output, where that was asked for
};

enum class ProcessOutput {
  kCapture,   // standard output comes back; standard error is thrown away
  kToStderr,  // both go to our standard error
};

// `arguments[0]` is the program, looked up in PATH where it has no slash. Waits for its end.
Result<ProcessOutcome> run_process(const std::vector<std::string>& arguments, ProcessOutput output);

// The other program takes the place of this one; comes back only where it cannot be started.
Error become_process(const std::vector<std::string>& arguments);

}  // namespace lockstep
