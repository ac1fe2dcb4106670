#include "base/text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// Each code point in UTF-8, by the definition.
std::string encoded(uint32_t code) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xc0 | code >> 6), byte(0x80 | (code & 63))};
  if (code < 0x10000)
    return {byte(0xe0 | code >> 12), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63))};
  return {byte(0xf0 | code >> 18), byte(0x80 | (code >> 12 & 63)), byte(0x80 | (code >> 6 & 63)),
          byte(0x80 | (code & 63))};
}

TEST(Printable, LinesKeepTheirEnds) {
  EXPECT_EQ(printable_lines(""), "");
  EXPECT_EQ(printable_lines("a\n\n\x1b[31mb\r\n"), "a\n\n\\x1b[31mb\\r\n");
  EXPECT_EQ(printable_lines("\xff\n\xe2\x80\xae"), "\\xff\n\\u202e");
}

TEST(Utf8, EveryCodePointIsReadAndOnlySurrogatesAreInvalid) {
  for (uint32_t code = 0; code < 0x110000; ++code) {
    const std::string text = encoded(code);
    const Utf8Char c = utf8_char(text, 0);
    if (code >= 0xd800 && code < 0xe000) {
      ASSERT_EQ(c.length, 0) << code;
    } else {
      ASSERT_EQ(c.code, code);
      ASSERT_EQ(static_cast<size_t>(c.length), text.size());
      ASSERT_EQ(utf8_length(text), 1);
    }
    // Cut short, it is invalid.
    if (text.size() > 1) {
      ASSERT_EQ(utf8_char(text.substr(0, text.size() - 1), 0).length, 0);
    }
  }
}

TEST(Utf8, InvalidBytesAreFoundWhereTheyAre) {
  EXPECT_EQ(find_invalid_utf8(""), std::string::npos);
  EXPECT_EQ(find_invalid_utf8("plain, é, 世, 🌍"), std::string::npos);
  EXPECT_EQ(find_invalid_utf8("ab\x80"), 2u);
  EXPECT_EQ(find_invalid_utf8("é\xc0\xaf"), 2u) << "overlong slash";
  EXPECT_EQ(find_invalid_utf8("a\xe0\x80\xaf"), 1u) << "overlong, three bytes";
  EXPECT_EQ(find_invalid_utf8("a\xf0\x80\x80\xaf"), 1u) << "overlong, four bytes";
  EXPECT_EQ(find_invalid_utf8("a\xf4\x90\x80\x80"), 1u) << "past U+10FFFF";
  EXPECT_EQ(find_invalid_utf8("a\xf5"), 1u);
  EXPECT_EQ(find_invalid_utf8("世\xe4\xb8"), 3u) << "cut short";
}

TEST(Printable, EscapesWhatDrivesATerminal) {
  EXPECT_EQ(printable("plain é 世 🌍"), "plain é 世 🌍");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable(std::string("\x1b[31m\0", 6)), "\\x1b[31m\\x00");
  EXPECT_EQ(printable("\x7f\xc2\x9b"), "\\u007f\\u009b");
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\u202eb");
  EXPECT_EQ(printable("\xff\xe4"), "\\xff\\xe4");
}

TEST(Printable, CutsByCharactersWithRoomForTheMark) {
  EXPECT_EQ(printable("abcd", 4), "abcd");
  EXPECT_EQ(printable("abcde", 4), "abc…");
  EXPECT_EQ(printable("世界世界世", 4), "世界世…");
  EXPECT_EQ(printable("ab\x1bz", 4), "ab…") << "an escape is not cut in two";
  EXPECT_EQ(printable("abc", 1), "…");
  EXPECT_EQ(printable("", 0), "");
}

TEST(Human, AFewDigitsAndAPrefix) {
  EXPECT_EQ(human(0), "0 ");
  EXPECT_EQ(human(999), "999 ");
  EXPECT_EQ(human(1000), "1.00 k");
  EXPECT_EQ(human(9994), "9.99 k");
  EXPECT_EQ(human(9996), "10.0 k");
  EXPECT_EQ(human(999'949), "999.9 k");
  EXPECT_EQ(human(999'951), "1.00 M");
  EXPECT_EQ(human(494'032'768), "494.0 M");
  EXPECT_EQ(human(8'030'261'248), "8.03 G");
  EXPECT_EQ(human(INT64_MAX), "9.22 E");
  EXPECT_EQ(human(-1500), "-1.50 k");
}

}  // namespace
}  // namespace lockstep
