// The reader of a suite's results on any bytes. What it reads comes out again as it was.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "suite/results.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::suite;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto results = parse_results(text, "fuzz");
  if (!results.ok()) {
    LS_CHECK(results.error().message.starts_with("fuzz"), "{}", results.error().message);
    return 0;
  }
  const std::string once = to_json(*results);
  const auto again = parse_results(once, "again");
  LS_CHECK(again.ok(), "{}", again.error().message);
  LS_CHECK(to_json(*again) == once);
  hold_against(*again, *results);
  static_cast<void>(merge({*again, *results}, {"a", "b"}));
  return 0;
}
