// What the steps of a normalizer do to a text. Bytes that are no UTF-8 stay as they are.
#pragma once

#include <string>
#include <string_view>

#include <utf8proc.h>

#include "tokenizer/charsmap.h"

namespace lockstep::tokenizer {

std::string in_form(std::string_view text, utf8proc_option_t options);  // Unicode's normal forms

// As the hub's library does it: it asks for a whole grapheme (what people call a character) of less
// than six bytes first, then for each code point; and it takes the shortest entry for all that it
// asked for.
std::string by_charsmap(std::string_view text, const Charsmap& map);

std::string lowercase(std::string_view text);
std::string without_marks(std::string_view text);  // accents and the like
// The rules of machine translation's texts: control characters go, odd spaces become spaces.
std::string as_nmt(std::string_view text);
std::string replaced(std::string_view text, std::string_view from, std::string_view to);
std::string spaces_merged(std::string_view text, std::string_view to);  // two or more in a row

}  // namespace lockstep::tokenizer
