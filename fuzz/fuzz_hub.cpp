// config.json, the index and tokenizer.json of a folder of the hub, on any text: the first byte
// chooses.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "hub/config.h"
#include "hub/tensors.h"
#include "hub/tokenizer_json.h"
#include "hub/weights_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::hub;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'i') {
    const auto index = parse_index(text, "fuzz");
    if (!index.ok()) LS_CHECK(index.error().message.starts_with("fuzz: "));
    return 0;
  }
  if (data[0] == 't') {
    const auto entries = read_tokenizer(text, "fuzz", 1000);
    if (!entries.ok()) LS_CHECK(entries.error().message.starts_with("fuzz: "));
    return 0;
  }
  const auto config = read_config(text, "fuzz");
  if (!config.ok()) {
    LS_CHECK(config.error().message.starts_with("fuzz: "), "{}", config.error().message);
    return 0;
  }
  LS_CHECK(config->family != nullptr && config->layers > 0 && config->heads > 0);
  // Tensors get their names from whoever made the file.
  const auto made = make_tensors(*config, {}, "fuzz");
  LS_CHECK(made.ok() || made.error().message.starts_with("fuzz: "));
  return 0;
}
