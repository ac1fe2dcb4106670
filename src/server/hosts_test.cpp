#include "server/hosts.h"

#include <gtest/gtest.h>

namespace lockstep::server {
namespace {

TEST(Hosts, NamesOfAField) {
  EXPECT_EQ(host_name("Example.COM:80"), "example.com");
  EXPECT_EQ(host_name("localhost."), "localhost");
  EXPECT_EQ(host_name("[::1]:8080"), "::1");
  EXPECT_EQ(host_name("[::1]"), "::1");
  EXPECT_EQ(host_name("a:"), "a");
  for (const char* wrong : {"", ":80", "a:b", "a:123456", "[::1", "[::1]80", "[localhost]", "::1",
                            "a b", "a,b", "user@a", "a/b", "."})
    EXPECT_EQ(host_name(wrong), std::nullopt) << wrong;
}

TEST(Hosts, OnTheLoopbackOnlyItsOwnNames) {
  const Hosts hosts = Hosts::create("127.0.0.1", true, {"Box.Example", "[fd00::7]"}).value();
  for (const char* mine : {"localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8080", "127.9.9.9",
                           "[::1]:8080", "[::ffff:127.0.0.1]", "box.example:8080", "[fd00::7]"})
    EXPECT_TRUE(hosts.allows(mine)) << mine;
  for (const char* other :
       {"", "evil.example", "localhost.evil.example", "evil-localhost", "127.0.0.1.evil.example",
        "0.0.0.0", "10.0.0.1", "[::]", "127.1", "2130706433", "[fd00::8]", "evil.example@localhost",
        "localhost:80:80", "a.box.example"})
    EXPECT_FALSE(hosts.allows(other)) << other;
  EXPECT_TRUE(Hosts::create("my-box", true, {}).value().allows("My-Box:80"));
}

TEST(Hosts, ElsewhereOnlyWhereNamesAreGiven) {
  EXPECT_TRUE(Hosts::create("0.0.0.0", false, {}).value().allows("any.example"));
  const Hosts hosts = Hosts::create("0.0.0.0", false, {"box.example"}).value();
  for (const char* mine : {"box.example", "localhost", "10.1.2.3:80", "[fd00::7]"})
    EXPECT_TRUE(hosts.allows(mine)) << mine;
  for (const char* other : {"", "evil.example", "x.box.example"})
    EXPECT_FALSE(hosts.allows(other)) << other;
}

TEST(Hosts, WrongNamesAreNamed) {
  for (const char* wrong : {"a:80", "http://a", "a/b", "a b", ""}) {
    const auto hosts = Hosts::create("127.0.0.1", true, {wrong});
    ASSERT_FALSE(hosts.ok()) << wrong;
    EXPECT_NE(hosts.error().message.find("--allow-host"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::server
