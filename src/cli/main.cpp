#include <csignal>
#include <cstdio>

#include <fcntl.h>

#include "base/no_throw.h"
#include "base/part_names.h"
#include "cli/command.h"
#include "cli/program.h"

namespace {

// A stream that was closed must not become the first file that is opened: what is written to it
// would go there. It stays one that fails.
void hold_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) == -1)
      static_cast<void>(open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY));
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_streams();
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
