// UTF-8 text from outside: checking it, and showing it without letting it drive the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// One character of `text` at `at`. Overlong forms, surrogates and values past U+10FFFF are invalid:
// length is 0 then, and code is the byte.
struct Utf8Char {
  uint32_t code;
  int length;
};
Utf8Char utf8_char(std::string_view text, size_t at);

// Where the first invalid byte is, or npos.
size_t find_invalid_utf8(std::string_view text);

// For people: control characters, invalid bytes and marks that reorder text are escaped (\n, \x1b,
// \u202e), and what passes `max_chars` is cut and ends in "…".
std::string printable(std::string_view text, int64_t max_chars = INT64_MAX);

// The same for text of several lines, whose ends stay.
std::string printable_lines(std::string_view text);

// Characters of valid UTF-8, each taken as one column wide.
int64_t utf8_length(std::string_view text);

// "4.92 G", "27 ", "495.1 M": a few digits and a decimal prefix, to put a unit behind ("4.92 GB").
std::string human(int64_t amount);

}  // namespace lockstep
