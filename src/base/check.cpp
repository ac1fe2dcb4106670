#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace lockstep {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "lockstep: internal error at %s:%d: %s does not hold%s%s\n", file, line,
               condition, message.empty() ? "" : ": ", message.c_str());
  std::abort();
}

}  // namespace lockstep
