// config.json, the index and tokenizer.json of a folder of the hub, on any text: the first byte
// chooses. What stands behind the first 0 of a tokenizer.json is a text for it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "hub/config.h"
#include "hub/tensors.h"
#include "hub/tokenizer_json.h"
#include "hub/weights_files.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace lockstep;

// What is read makes a tokenizer, or an error; its ids are those of its tokens.
void try_tokenizer(std::string_view input) {
  const size_t end = input.find('\0');
  auto entries = hub::read_tokenizer(input.substr(0, end), "fuzz", 1000);
  if (!entries.ok()) {
    LS_CHECK(entries.error().message.starts_with("fuzz: "));
    return;
  }
  gguf::Assembly parts;
  parts.path = "fuzz";
  parts.metadata = *std::move(entries);
  const auto file = gguf::File::assemble(std::move(parts));
  LS_CHECK(file.ok(), "{}", file.error().message);
  const auto tokens = tokenizer::Tokenizer::load(*file);
  if (!tokens.ok()) {
    LS_CHECK(tokens.error().message.starts_with("fuzz: "), "{}", tokens.error().message);
    return;
  }
  const std::string text =
      "Ab <s>\u00e9 \u2581\xff"
      "12" +
      std::string(end == input.npos ? "" : input.substr(end));
  for (const bool special : {false, true})
    for (const tokenizer::TokenId id : (*tokens)->encode(text, {.parse_special = special}))
      LS_CHECK(id >= 0 && id < (*tokens)->size(), "{} of {}", id, (*tokens)->size());
}

}  // namespace

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
    try_tokenizer(text);
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
