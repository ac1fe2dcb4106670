#include <csignal>
#include <cstdio>

#include "base/no_throw.h"
#include "base/part_names.h"
#include "cli/command.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write, told as such
  lockstep::remove_parts_on_signals();
  try {
    lockstep::cli::Program program;
    return program.run({argv + (argc > 0 ? 1 : 0), argv + argc});
  } catch (...) {  // mostly that there is no memory even to read the arguments
    std::fprintf(stderr, "lockstep: %s\n", lockstep::caught_error().message.c_str());
    return lockstep::cli::kWrongUse;
  }
}
