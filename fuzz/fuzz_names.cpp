// The reader of name maps on any bytes, and what a map makes of names that are in it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "trace/name_map.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::trace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto map = NameMap::parse(text, "fuzz");
  if (!map.ok()) {
    LS_CHECK(map.error().message.starts_with("fuzz: "), "{}", map.error().message);
    return 0;
  }
  for (const std::string_view architecture : {"llama", "phi3", ""})
    for (const std::string_view node : {"attn_norm-0", "a", "", "ffn_up-12", "{N}"})
      map->checkpoint(node, architecture);
  return 0;
}
