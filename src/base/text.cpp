#include "base/text.h"

#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

uint32_t byte_at(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// C1 controls are escape sequences to some terminals; the rest change the direction of text.
bool is_unsafe(uint32_t code) {
  return (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

std::string escaped(std::string_view text, size_t at, Utf8Char c) {
  if (c.length == 0) return fmt::format("\\x{:02x}", c.code);
  if (c.code == '\n') return "\\n";
  if (c.code == '\r') return "\\r";
  if (c.code == '\t') return "\\t";
  if (c.code < 0x20) return fmt::format("\\x{:02x}", c.code);
  if (is_unsafe(c.code)) return fmt::format("\\u{:04x}", c.code);
  return std::string(text.substr(at, static_cast<size_t>(c.length)));
}

}  // namespace

Utf8Char utf8_char(std::string_view text, size_t at) {
  const uint32_t first = byte_at(text, at);
  if (first < 0x80) return {first, 1};
  const Utf8Char invalid{first, 0};
  if (first < 0xc2 || first > 0xf4) return invalid;
  const int length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() - at < static_cast<size_t>(length)) return invalid;
  uint32_t code = first & (0x7fu >> length);
  for (int i = 1; i < length; ++i) {
    const uint32_t next = byte_at(text, at + static_cast<size_t>(i));
    if ((next & 0xc0u) != 0x80u) return invalid;
    code = code << 6 | (next & 0x3fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
    return invalid;
  return {code, length};
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char(text, at);
    if (c.length == 0) return at;
    at += static_cast<size_t>(c.length);
  }
  return std::string_view::npos;
}

std::string printable(std::string_view text, int64_t max_chars) {
  std::string out;
  int64_t chars = 0;
  size_t keep = 0;  // bytes of `out` that leave room for the mark of a cut
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char(text, at);
    const std::string shown = escaped(text, at, c);
    chars += utf8_length(shown);
    if (chars > max_chars) return out.substr(0, keep) + "…";
    out += shown;
    if (chars < max_chars) keep = out.size();
    at += static_cast<size_t>(c.length == 0 ? 1 : c.length);
  }
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  while (true) {
    const size_t end = text.find('\n');
    out += printable(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

int64_t utf8_length(std::string_view text) {
  int64_t chars = 0;
  for (const char c : text) chars += (static_cast<unsigned char>(c) & 0xc0u) != 0x80u ? 1 : 0;
  return chars;
}

std::string human(int64_t amount) {
  constexpr std::string_view kPrefixes[] = {"k", "M", "G", "T", "P", "E"};
  if (amount > -1000 && amount < 1000) return fmt::format("{} ", amount);
  auto scaled = static_cast<double>(amount);
  size_t prefix = 0;
  // 999.95 would be shown as 1000.0, so it already counts as the next prefix.
  for (scaled /= 1000; std::abs(scaled) >= 999.95; scaled /= 1000) ++prefix;
  return fmt::format("{:.{}f} {}", scaled, std::abs(scaled) < 9.995 ? 2 : 1, kPrefixes[prefix]);
}

}  // namespace lockstep
