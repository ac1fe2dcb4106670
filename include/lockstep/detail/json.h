// Of lockstep/recorder.h: texts and numbers as JSON.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::detail {

// The length of the UTF-8 sequence that `text` begins with; 0 where it is none.
inline size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Longer than needed, halves of surrogate pairs, beyond U+10FFFF.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
  if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

inline bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

// Any bytes as a JSON string; those that are no UTF-8 become U+FFFD.
inline std::string json_text(std::string_view text) {
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; };
  std::string out = "\"";
  while (!text.empty()) {
    size_t run = 0;  // most texts are one
    while (run < text.size() && plain(text[run])) ++run;
    out += text.substr(0, run);
    text.remove_prefix(run);
    if (text.empty()) break;
    const size_t length = utf8_length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (is_control(text[0])) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(text[0]));
      out += escape;
    } else {
      if (text[0] == '"' || text[0] == '\\') out += '\\';
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out + '"';
}

// The shortest of two forms that give the same number back; null for what JSON does not have.
inline std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40] = "";
  std::snprintf(text, sizeof text, "%.15g", value);
  if (std::strtod(text, nullptr) != value) std::snprintf(text, sizeof text, "%.17g", value);
  for (char& c : text)
    if (c == ',') c = '.';  // the engine's locale may have a comma
  return text;
}

// "[1,2,3]"
template <class Number>
std::string json_array(const std::vector<Number>& numbers) {
  std::string out = "[";
  for (const Number n : numbers) {
    if (out.size() > 1) out += ',';
    out += std::to_string(n);
  }
  return out + ']';
}

using JsonFields = std::vector<std::pair<std::string, std::string>>;  // key, value as JSON

// Fields without a value are left out.
inline std::string json_object(const JsonFields& fields) {
  std::string out = "{";
  for (const auto& [key, value] : fields) {
    if (value.empty()) continue;
    if (out.size() > 1) out += ", ";
    out += json_text(key) + ": " + value;
  }
  return out + '}';
}

// The same with a line a field, for the whole of a document.
inline std::string json_document(const JsonFields& fields) {
  std::string out = "{";
  for (const auto& [key, value] : fields)
    if (!value.empty()) out += (out.size() > 1 ? ",\n " : "\n ") + json_text(key) + ": " + value;
  return out + "\n}\n";
}

// A line an item.
inline std::string json_list(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const std::string& item : items) out += (out.size() > 1 ? ",\n  " : "\n  ") + item;
  return out + "]";
}

}  // namespace lockstep::detail
