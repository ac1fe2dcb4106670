// The reader of the file of a part on any bytes. What it reads comes out again as it was.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "parity/part.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto findings = parity::parse_findings(text, "fuzz");
  if (!findings.ok()) {
    LS_CHECK(findings.error().message.starts_with("fuzz"), "{}", findings.error().message);
    return 0;
  }
  const std::string once = parity::to_json(*findings);
  const auto again = parity::parse_findings(once, "again");
  LS_CHECK(again.ok(), "{}", again.error().message);
  LS_CHECK(parity::to_json(*again) == once);
  const Part parts[] = {findings->part, again->part};
  const std::string sources[] = {"a", "b"};
  static_cast<void>(check_parts(parts, sources, true));
  return 0;
}
