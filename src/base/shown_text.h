// What is printed for machines and people alike, so that nothing in it drives a terminal.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// JSON as a library writes it, with DEL, C1 controls and marks that reorder text as \u escapes.
std::string with_escapes(std::string_view json);

// A document on one line, or indented. Bytes that are no UTF-8 become U+FFFD.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return with_escapes(json.dump(indent, ' ', false, Json::error_handler_t::replace));
}

// Text for standard output `fd`: as it is, but on a terminal without its control characters. Ends
// of lines and tabs stay.
std::string shown_text(std::string_view text, int fd);

}  // namespace lockstep
