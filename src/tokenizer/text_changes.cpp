#include "tokenizer/text_changes.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>

#include "tokenizer/unicode.h"

namespace lockstep::tokenizer {
namespace {

// Applies `change` to the longest stretches that are UTF-8.
template <class Change>
std::string change_valid(std::string_view text, const Change& change) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = std::min(find_invalid_utf8(text), text.size());
    if (valid > 0) out += change(text.substr(0, valid));
    if (valid < text.size()) out += text[valid];
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
  return out;
}

std::string valid_in_form(std::string_view text, utf8proc_option_t options) {
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  if (size < 0) throw std::bad_alloc();  // the text is UTF-8: nothing else can be wrong
  return {reinterpret_cast<const char*>(made), static_cast<size_t>(size)};
}

void append_utf8(std::string& out, uint32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(size));
}

// A function from a character to what it becomes, over a text.
template <class Become>
std::string characters(std::string_view text, const Become& become) {
  std::string out;
  out.reserve(text.size());
  for_characters(
      text, [&](uint32_t code, std::string_view bytes) { become(out, code, bytes); },
      [&](std::string_view bytes) { out += bytes; });
  return out;
}

std::string valid_by_charsmap(std::string_view text, const Charsmap& map) {
  std::string out;
  const auto grapheme = [&](std::string_view cluster) {
    if (cluster.size() < 6) {
      if (const auto entry = map.shortest(cluster)) {
        out += entry->becomes;
        return;
      }
    }
    for_characters(
        cluster,
        [&](uint32_t, std::string_view bytes) {
          const auto entry = map.shortest(bytes);
          out += entry ? entry->becomes : bytes;
        },
        [](std::string_view) {});
  };
  size_t begin = 0, at = 0;
  uint32_t before = 0;
  utf8proc_int32_t state = 0;
  for_characters(
      text,
      [&](uint32_t code, std::string_view bytes) {
        if (at > begin && utf8proc_grapheme_break_stateful(static_cast<int32_t>(before),
                                                           static_cast<int32_t>(code), &state)) {
          grapheme(text.substr(begin, at - begin));
          begin = at;
        }
        before = code;
        at += bytes.size();
      },
      [](std::string_view) {});
  if (at > begin) grapheme(text.substr(begin, at - begin));
  return out;
}

}  // namespace

std::string in_form(std::string_view text, utf8proc_option_t options) {
  if (is_ascii(text)) return std::string(text);
  return change_valid(text, [&](std::string_view valid) { return valid_in_form(valid, options); });
}

std::string by_charsmap(std::string_view text, const Charsmap& map) {
  return change_valid(text, [&](std::string_view valid) { return valid_by_charsmap(valid, map); });
}

std::string lowercase(std::string_view text) {
  return characters(text, [](std::string& out, uint32_t code, std::string_view) {
    if (code == 0x130)  // the one character that becomes two: i and a dot above
      out += "i\u0307";
    else
      append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(code))));
  });
}

std::string without_marks(std::string_view text) {
  return characters(text, [](std::string& out, uint32_t code, std::string_view bytes) {
    const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(code));
    const bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                      category == UTF8PROC_CATEGORY_ME;
    if (!mark) out += bytes;
  });
}

std::string as_nmt(std::string_view text) {
  return characters(text, [](std::string& out, uint32_t code, std::string_view bytes) {
    const bool removed = (code >= 1 && code <= 8) || code == 0xb || (code >= 0xe && code <= 0x1f) ||
                         code == 0x7f || code == 0x8f || code == 0x9f;
    const bool space = code == 9 || code == 0xa || code == 0xc || code == 0xd || code == 0x1680 ||
                       (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 ||
                       code == 0x2581 || code == 0xfeff || code == 0xfffd;
    if (space)
      out += ' ';
    else if (!removed)
      out += bytes;
  });
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != std::string_view::npos; done = at + from.size())
    out.append(text, done, at - done).append(to);
  return out.append(text, done);
}

std::string spaces_merged(std::string_view text, std::string_view to) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && text[end] == ' ') ++end;
    if (end - at >= 2)
      out += to;
    else
      out += text.substr(at, std::max<size_t>(1, end - at));
    at = std::max(at + 1, end);
  }
  return out;
}

}  // namespace lockstep::tokenizer
