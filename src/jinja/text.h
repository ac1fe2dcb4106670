// Python's str, as far as templates use it: UTF-8 text seen as code points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::jinja {

// A byte that is not UTF-8 becomes kRawByte + byte, so that text survives the way there and back.
constexpr char32_t kRawByte = 0x110000;

std::u32string decode(std::string_view text);
std::string encode(std::u32string_view points);
void append_point(std::string& out, char32_t point);
int64_t count_points(std::string_view text);

bool is_space(char32_t point);  // str.isspace
bool is_printable(char32_t point);
bool is_alpha(char32_t point);
bool is_digit(char32_t point);

// One character to one character (glibc's tables of Unicode): 'ß' stays as it is.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // str.title: a letter after no letter
// The filter of that name: first character after a space, a dash or a bracket.
std::string title_words(std::string_view text);

enum class Side { kBoth, kLeft, kRight };
std::string_view strip(std::string_view text, Side side = Side::kBoth);
std::string_view strip(std::string_view text, std::string_view characters, Side side);

// `limit` < 0: all. An empty separator must not get here; split_space cuts at runs of spaces.
std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t limit,
                               bool from_right);
std::vector<std::string> split_space(std::string_view text, int64_t limit);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends = false);
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit);

std::string float_text(double number);  // repr(float)

}  // namespace lockstep::jinja
