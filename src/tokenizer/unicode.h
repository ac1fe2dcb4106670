// Texts as characters, where what is no UTF-8 has to stay as it is.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/text.h"

namespace lockstep::tokenizer {

// What SentencePiece has in place of a space.
inline constexpr std::string_view kSpaceMark = "\u2581";

// Unicode's White_Space.
constexpr bool is_white_space(uint32_t code) {
  return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

inline bool is_ascii(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  return true;
}

// Calls character(code, bytes) for every character, stray(bytes) for what is none.
template <class Character, class Stray>
void for_characters(std::string_view text, const Character& character, const Stray& stray) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char here = utf8_char(text, at);
    const size_t length = here.length > 0 ? static_cast<size_t>(here.length) : 1;
    if (here.length > 0)
      character(here.code, text.substr(at, length));
    else
      stray(text.substr(at, length));
    at += length;
  }
}

// Bytes of white space that `text` begins or ends with.
inline size_t white_space_before(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char here = utf8_char(text, at);
    if (here.length == 0 || !is_white_space(here.code)) break;
    at += static_cast<size_t>(here.length);
  }
  return at;
}

inline size_t white_space_after(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 &&
           (static_cast<unsigned char>(text[begin]) & 0xc0U) == 0x80U)
      --begin;
    const Utf8Char here = utf8_char(text, begin);
    if (here.length == 0 || begin + static_cast<size_t>(here.length) != end ||
        !is_white_space(here.code))
      break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace lockstep::tokenizer
