#include "models/certificates.h"

#include <array>
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"

namespace lockstep::models {
namespace {

TEST(Certificates, TheVariableThenTheUsualThenTheFirstThatIsThere) {
  const char* before = std::getenv("SSL_CERT_FILE");
  const std::string kept = before != nullptr ? before : "";
  ::unsetenv("SSL_CERT_FILE");
  const auto folder = TemporaryFolder::create();
  const std::string usual = (folder->path() / "usual").string();
  const std::string a = (folder->path() / "a").string(), b = (folder->path() / "b").string();
  const std::array<const char*, 3> places{folder->path().c_str(), a.c_str(), b.c_str()};

  EXPECT_EQ(find_certificates(nullptr, places), "");  // a folder is no file
  std::ofstream{b};
  EXPECT_EQ(find_certificates(nullptr, places), b);
  EXPECT_EQ(find_certificates(usual.c_str(), places), b);
  EXPECT_EQ(find_certificates("", {}), "");
  std::ofstream{a};
  EXPECT_EQ(find_certificates(usual.c_str(), places), a);
  std::ofstream{usual};
  EXPECT_EQ(find_certificates(usual.c_str(), places), usual);
  ::setenv("SSL_CERT_FILE", "", 1);
  EXPECT_EQ(find_certificates(usual.c_str(), places), usual);
  ::setenv("SSL_CERT_FILE", "/mine", 1);  // there or not: the user has said it
  EXPECT_EQ(find_certificates(usual.c_str(), places), "/mine");
  before != nullptr ? ::setenv("SSL_CERT_FILE", kept.c_str(), 1) : ::unsetenv("SSL_CERT_FILE");
}

}  // namespace
}  // namespace lockstep::models
