// The rules of a tokenizer.json (what becomes of a text before the vocabulary), and SentencePiece's
// table of characters, on any bytes; what stands behind the first 0 is the text to try them on.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/rules.h"

namespace lockstep::tokenizer {
namespace {

void try_map(std::string_view bytes) {
  const auto map = Charsmap::read(bytes, "fuzz");
  if (!map.ok()) {
    LS_CHECK(map.error().message.starts_with("fuzz: "));
    return;
  }
  for (std::string_view rest = bytes; !rest.empty(); rest.remove_prefix(1)) {
    const auto shortest = map->shortest(rest), longest = map->longest(rest);
    LS_CHECK(shortest.has_value() == longest.has_value());
    if (shortest) LS_CHECK(shortest->length <= longest->length && longest->length <= rest.size());
  }
}

void try_rules(std::string_view input) {
  const size_t end = input.find('\0');
  const std::string_view text = end == input.npos ? "" : input.substr(end + 1);
  const auto document = parse_json(input.substr(0, end), "fuzz", 10'000);
  if (!document.ok()) return;
  const auto rules = read_rules(JsonReader(*document, "fuzz"));
  if (!rules.ok()) {
    LS_CHECK(rules.error().message.starts_with("fuzz: "), "{}", rules.error().message);
    return;
  }
  std::deque<std::string> made;
  const Pipeline pipeline(*rules, 100);
  for (const bool special : {false, true})
    for (const Fragment& fragment : pipeline.run(text, special, made))
      LS_CHECK(fragment.token != kNoToken || !fragment.text.empty(), "an empty piece");
}

}  // namespace
}  // namespace lockstep::tokenizer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with('m'))
    lockstep::tokenizer::try_map(input.substr(1));
  else
    lockstep::tokenizer::try_rules(input);
  return 0;
}
