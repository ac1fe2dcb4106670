#include "jinja/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cwctype>
#include <utility>

#include <locale.h>

namespace lockstep::jinja {

namespace {

// The C library's tables of characters, whatever locale the program runs in.
locale_t unicode() {
  static const locale_t kLocale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return kLocale;
}

char32_t to_upper(char32_t point) {
  if (point >= kRawByte || !unicode()) return point;
  return static_cast<char32_t>(towupper_l(static_cast<wint_t>(point), unicode()));
}

char32_t to_lower(char32_t point) {
  if (point >= kRawByte || !unicode()) return point;
  return static_cast<char32_t>(towlower_l(static_cast<wint_t>(point), unicode()));
}

// Length of the UTF-8 sequence at `at`, and its code point; 1 and a raw byte where it is none.
size_t decode_one(std::string_view text, size_t at, char32_t& point) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  point = kRawByte + lead;
  if (lead < 0x80) {
    point = lead;
    return 1;
  }
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + length > text.size()) return 1;
  char32_t sum = lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 1;
    sum = sum << 6 | (byte(at + i) & 0x3F);
  }
  static constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (sum < kLeast[length] || sum > 0x10FFFF || (sum >= 0xD800 && sum < 0xE000)) return 1;
  point = sum;
  return length;
}

template <class Change>
std::string map_points(std::string_view text, Change change) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    char32_t point;
    at += decode_one(text, at, point);
    append_point(out, change(point));
  }
  return out;
}

}  // namespace

std::u32string decode(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    char32_t point;
    at += decode_one(text, at, point);
    points.push_back(point);
  }
  return points;
}

void append_point(std::string& out, char32_t point) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point >= kRawByte) {
    put(point - kRawByte);
  } else if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

std::string encode(std::u32string_view points) {
  std::string out;
  out.reserve(points.size());
  for (const char32_t point : points) append_point(out, point);
  return out;
}

int64_t count_points(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    char32_t point;
    at += decode_one(text, at, point);
  }
  return count;
}

bool is_space(char32_t point) {
  return (point >= 9 && point <= 13) || (point >= 28 && point <= 32) || point == 0x85 ||
         point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) ||
         point == 0x2028 || point == 0x2029 || point == 0x202F || point == 0x205F ||
         point == 0x3000;
}

bool is_printable(char32_t point) {
  if (point < 0x80) return point >= 0x20 && point < 0x7F;
  if (point >= kRawByte || is_space(point)) return false;
  return unicode() && iswprint_l(static_cast<wint_t>(point), unicode());
}

bool is_alpha(char32_t point) {
  return point < kRawByte && unicode() && iswalpha_l(static_cast<wint_t>(point), unicode()) &&
         !is_digit(point);
}

bool is_digit(char32_t point) {
  return point >= '0' && point <= '9';
}

std::string upper(std::string_view text) {
  return map_points(text, to_upper);
}

std::string lower(std::string_view text) {
  return map_points(text, to_lower);
}

std::string capitalize(std::string_view text) {
  bool first = true;
  return map_points(text, [&](char32_t point) {
    return std::exchange(first, false) ? to_upper(point) : to_lower(point);
  });
}

std::string title(std::string_view text) {
  bool inside = false;
  return map_points(text, [&](char32_t point) {
    const char32_t changed = inside ? to_lower(point) : to_upper(point);
    inside = is_alpha(point);
    return changed;
  });
}

std::string title_words(std::string_view text) {
  bool inside = false;
  return map_points(text, [&](char32_t point) {
    const char32_t changed = inside ? to_lower(point) : to_upper(point);
    inside = !(is_space(point) || (point < 0x80 && std::string_view("-({[<").find(static_cast<char>(
                                                       point)) != std::string_view::npos));
    return changed;
  });
}

namespace {

template <class Drop>
std::string_view strip_where(std::string_view text, Side side, Drop drop) {
  size_t begin = 0;
  size_t end = text.size();
  char32_t point;
  if (side != Side::kRight) {
    while (begin < end) {
      const size_t length = decode_one(text, begin, point);
      if (!drop(point)) break;
      begin += length;
    }
  }
  if (side != Side::kLeft) {
    while (end > begin) {
      // Back to the start of the last character: at most three continuation bytes.
      size_t start = end - 1;
      while (start > begin && end - start < 4 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80)
        --start;
      if (start + decode_one(text, start, point) != end) {
        start = end - 1;
        decode_one(text, start, point);
      }
      if (!drop(point)) break;
      end = start;
    }
  }
  return text.substr(begin, end - begin);
}

}  // namespace

std::string_view strip(std::string_view text, Side side) {
  return strip_where(text, side, is_space);
}

std::string_view strip(std::string_view text, std::string_view characters, Side side) {
  const std::u32string set = decode(characters);
  return strip_where(text, side,
                     [&](char32_t point) { return set.find(point) != std::u32string::npos; });
}

std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t limit,
                               bool from_right) {
  std::vector<std::string> parts;
  while (limit < 0 || std::cmp_less(parts.size(), limit)) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      parts.emplace_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      parts.emplace_back(text.substr(0, at));
      text = text.substr(at + separator.size());
    }
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_space(std::string_view text, int64_t limit) {
  std::vector<std::string> parts;
  text = strip(text, Side::kLeft);
  while (!text.empty()) {
    if (limit >= 0 && std::cmp_greater_equal(parts.size(), limit)) {
      parts.emplace_back(text);  // the rest keeps its trailing spaces, as in Python
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      char32_t point;
      const size_t length = decode_one(text, end, point);
      if (is_space(point)) break;
      end += length;
    }
    parts.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), Side::kLeft);
  }
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    char32_t point;
    size_t next = at + decode_one(text, at, point);
    const bool ends = (point >= 10 && point <= 13) || (point >= 28 && point <= 30) ||
                      point == 0x85 || point == 0x2028 || point == 0x2029;
    if (ends) {
      if (point == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.emplace_back(text.substr(start, (keep_ends ? next : at) - start));
      start = next;
    }
    at = next;
  }
  if (start < text.size()) lines.emplace_back(text.substr(start));
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit) {
  std::string out;
  size_t at = 0;
  if (from.empty()) {  // Python puts `to` before every character and at the end
    while (limit != 0) {
      out += to;
      --limit;
      if (at == text.size()) return out;
      char32_t point;
      const size_t length = decode_one(text, at, point);
      out += text.substr(at, length);
      at += length;
    }
    return out += text.substr(at);
  }
  for (; limit != 0; --limit) {
    const size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
  }
  return out += text.substr(at);
}

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  const std::string shortest(buffer, end.ptr);
  const size_t e = shortest.find('e');
  const int exponent = std::stoi(shortest.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return shortest;  // Python writes it the same way
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed);
  std::string text(buffer, fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace lockstep::jinja
