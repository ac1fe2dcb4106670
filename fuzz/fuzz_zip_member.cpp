// The reader of zip archives on any bytes: an error or contents, never a crash or more than is
// stated.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "models/zip_member.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const auto member = models::find_zip_member(std::as_bytes(std::span(data, size)), "x");
  if (!member.ok()) return 0;
  int64_t given = 0;
  const auto outcome = models::unpack(*member, [&](std::span<const char> piece) -> Result<void> {
    given += static_cast<int64_t>(piece.size());
    return {};
  });
  LS_CHECK(given <= member->size_bytes);
  LS_CHECK(!outcome.ok() || given == member->size_bytes);
  return 0;
}
