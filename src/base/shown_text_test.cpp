#include "base/shown_text.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace lockstep {
namespace {

TEST(ShownText, JsonKeepsItsMeaningAndDrivesNoTerminal) {
  const std::string text =
      "h\xc3\xa4\xc3\x9f \x1b[31m \xc2\x9b"
      "31m \x7f \xe2\x80\xae \xef\xbb\xbf \n\t\"\\ \xf0\x9f\x98\x80";
  const nlohmann::ordered_json json = {{"k" + text, text}, {"list", {1, text}}};
  for (const int indent : {-1, 0, 2}) {
    const std::string shown = json_text(json, indent);
    EXPECT_EQ(nlohmann::ordered_json::parse(shown), json);
    EXPECT_EQ(shown.find_first_of("\x1b\x7f\t"), std::string::npos);
    EXPECT_EQ(shown.find("\xc2\x9b"), std::string::npos);
    EXPECT_NE(shown.find("h\xc3\xa4\xc3\x9f \\u001b[31m \\u009b31m \\u007f \\u202e \\ufeff"),
              std::string::npos);
    EXPECT_NE(shown.find("\xf0\x9f\x98\x80"), std::string::npos);
  }
  EXPECT_EQ(json_text(nlohmann::ordered_json("a\xff")), "\"a\xef\xbf\xbd\"");
}

TEST(ShownText, AllBytesGoThroughAPipe) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const int fd = ::open("/dev/null", O_WRONLY);
  EXPECT_EQ(shown_text(all, fd), all);
  ::close(fd);
}

TEST(ShownText, OnATerminalControlsAreShown) {
  const int fd = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (fd < 0 || ::isatty(fd) != 1) GTEST_SKIP() << "no terminals here";
  EXPECT_EQ(shown_text("a\tb\nc\x1b[0m\r\xc2\x85\xff\n\n", fd),
            "a\tb\nc\\x1b[0m\\r\\u0085\\xff\n\n");
  EXPECT_EQ(shown_text("", fd), "");
  ::close(fd);
}

}  // namespace
}  // namespace lockstep
