#include "base/shown_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/text.h"

namespace lockstep {

std::string with_escapes(std::string_view json) {
  std::string out;
  for (size_t at = 0; at < json.size();) {
    const Utf8Char c = utf8_char(json, at);
    const std::string_view bytes =
        json.substr(at, c.length == 0 ? 1 : static_cast<size_t>(c.length));
    at += bytes.size();
    // Below 0x20 there are only the line ends of the layout: the library escapes those in texts.
    if (c.code < 0x7f || printable(bytes) == bytes)
      out += bytes;
    else
      out += fmt::format("\\u{:04x}", c.code);
  }
  return out;
}

std::string shown_text(std::string_view text, int fd) {
  if (::isatty(fd) != 1) return std::string(text);
  std::string out;
  while (true) {
    const size_t end = text.find_first_of("\n\t");
    out += printable(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out += text[end];
    text.remove_prefix(end + 1);
  }
}

}  // namespace lockstep
