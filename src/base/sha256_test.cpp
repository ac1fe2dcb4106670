#include "base/sha256.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Sha256, StandardVectors) {
  // FIPS 180-4 examples, in pieces of odd sizes.
  const auto sum = [](std::string_view text, size_t piece) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece)
      hash.add(std::as_bytes(std::span(text.substr(at, piece))));
    return hash.finish();
  };
  const std::string million(1'000'000, 'a');
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{255}, size_t{257}, size_t{1'000'000}}) {
    SCOPED_TRACE(piece);
    EXPECT_EQ(sum("", piece), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sum("abc", piece),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sum(million, piece),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST(Sha256, TellsASumFromOtherText) {
  const std::string sum(64, 'a');
  EXPECT_TRUE(is_sha256(sum));
  EXPECT_TRUE(is_sha256(std::string(32, '0') + std::string(32, 'F')));
  for (const std::string& text : {std::string(), sum.substr(1), sum + "a", sum.substr(1) + "g",
                                  " " + sum.substr(1), sum.substr(1) + std::string(1, '\0')})
    EXPECT_FALSE(is_sha256(text)) << text;
}

}  // namespace
}  // namespace lockstep
