#include <csignal>

#include "cli/program.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write, told as such
  lockstep::cli::Program program;
  return program.run({argv + (argc > 0 ? 1 : 0), argv + argc});
}
