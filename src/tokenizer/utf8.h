// Walking over bytes that may or may not be UTF-8 (RFC 3629: no surrogates, no overlong forms).
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::tokenizer {

enum class Utf8 : uint8_t {
  kWhole,    // a character
  kCut,      // the text ends inside what may still become a character
  kInvalid,  // can never become one, whatever follows
};

struct Utf8Step {
  Utf8 state;
  size_t length;  // bytes of the character, or of the longest beginning of one; at least 1
};

// What stands at the start of `text`, which is not empty.
constexpr Utf8Step utf8_step(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {Utf8::kWhole, 1};
  if (lead < 0xc2 || lead > 0xf4) return {Utf8::kInvalid, 1};
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The second byte is what excludes overlong forms, surrogates, and values past U+10FFFF.
  const uint8_t second_low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const uint8_t second_high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8::kCut, i};
    const uint8_t low = i == 1 ? second_low : 0x80;
    const uint8_t high = i == 1 ? second_high : 0xbf;
    if (byte(i) < low || byte(i) > high) return {Utf8::kInvalid, i};
  }
  return {Utf8::kWhole, length};
}

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace lockstep::tokenizer
