// The manifest reader on any bytes. What parses is written and read again without a change.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "trace/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::trace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = parse_manifest(text, "fuzz");
  if (!manifest.ok()) {
    LS_CHECK(manifest.error().message.starts_with("fuzz: "), "{}", manifest.error().message);
    return 0;
  }
  const std::string written = to_json(*manifest);
  const auto again = parse_manifest(written, "again");
  LS_CHECK(again.ok(), "{}", again.error().message);
  LS_CHECK(to_json(*again) == written);
  return 0;
}
