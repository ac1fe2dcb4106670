// The reader of suites on any bytes, and the jobs of those that are right.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "suite/suite.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::suite;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto suite = parse_suite(text, "fuzz");
  if (!suite.ok()) {
    LS_CHECK(suite.error().message.starts_with("fuzz:"), "{}", suite.error().message);
    return 0;
  }
  for (const Job& job : jobs_of(*suite)) LS_CHECK(!job.id.empty() && job.key.size() == 32);
  return 0;
}
