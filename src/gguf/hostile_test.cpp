// Files that are wrong on purpose: each gives an error that says where, what was found and what was
// expected, and none crashes or takes memory that it has no right to.
#include "gguf/parse.h"
#include "gguf/test_support.h"

namespace lockstep::gguf {
namespace {

using namespace test;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ4K = 12;

void expect_error(const Raw& raw, const std::string& expected) {
  EXPECT_EQ(parse_error(raw.bytes), "test.gguf: " + expected);
}

TEST(Hostile, Magic) {
  EXPECT_EQ(parse_error(""),
            "test.gguf: byte 0: magic: found the end of the file after 0 bytes, expected 4 bytes");
  EXPECT_EQ(parse_error("GG\x1b"),
            "test.gguf: byte 0: magic: found the end of the file after 3 bytes, expected 4 bytes");
  EXPECT_EQ(parse_error("ELF\x7f____________"),
            "test.gguf: byte 0: magic: found \"ELF\\u007f\", expected \"GGUF\"");
  EXPECT_EQ(parse_error("FUGG____________"),
            "test.gguf: byte 0: magic: found \"FUGG\", expected \"GGUF\": the file is big-endian, "
            "which is not supported");
  EXPECT_NE(parse_error("version https://git-lfs.github.com/spec/v1\n").find("Git LFS pointer"),
            std::string::npos);
  EXPECT_NE(parse_error("<!DOCTYPE html>").find("web page"), std::string::npos);
  EXPECT_NE(parse_error("PK\3\4____________").find("zip archive"), std::string::npos);
  EXPECT_NE(parse_error(std::string(100, '\0')).find("zeros"), std::string::npos);
}

TEST(Hostile, Version) {
  expect_error(Raw().header(0, 0, 0), "byte 4: version: found 0, expected 2 or 3");
  expect_error(Raw().header(0, 0, 1),
               "byte 4: version: found 1, expected 2 or 3: convert the model again, version 1 is "
               "long obsolete");
  expect_error(Raw().header(0, 0, 4),
               "byte 4: version: found 4, expected 2 or 3: the file is newer than this program");
  expect_error(Raw().header(0, 0, 0x03000000),
               "byte 4: version: found 50331648, expected 2 or 3: the file is big-endian, which is "
               "not supported");
}

TEST(Hostile, Counts) {
  expect_error(Raw().header(1, 0),
               "byte 8: number of tensors: found 1, expected at most 0, since 8 bytes are left in "
               "the file");
  expect_error(Raw().header(UINT64_MAX, 0),
               "byte 8: number of tensors: found 18446744073709551615, expected at most 0, since 8 "
               "bytes are left in the file");
  expect_error(Raw().header(0, UINT64_MAX),
               "byte 16: number of metadata entries: found 18446744073709551615, expected at most "
               "0, since 0 bytes are left in the file");
  expect_error(Raw().header(0, 3).data(26, 1),
               "byte 16: number of metadata entries: found 3, expected at most 2, since 26 bytes "
               "are left in the file");
}

TEST(Hostile, Metadata) {
  expect_error(Raw().header(0, 1).u64(1000).data(20, 1),
               "byte 24: length of metadata key 0: found 1000, expected at most 20, since 20 bytes "
               "are left in the file");
  expect_error(Raw()
                   .header(0, 1)
                   .text("a\xc0\xaf"
                         "b")
                   .data(20, 1),
               "byte 33: metadata key 0: found \"a\\xc0\\xafb\", expected valid UTF-8");
  expect_error(Raw().header(0, 2).entry("a.b", Value{1.0f}).entry("a.b", Value{true}),
               "byte 43: metadata key 1: found 'a.b' a second time, expected unique keys");
  expect_error(Raw().header(0, 1).text("k").u32(13).data(8, 1),
               "byte 33: metadata type of 'k': found 13, expected a known type, 0 to 12");
  expect_error(Raw().header(0, 1).text("k").u32(7).number<uint8_t>(2),
               "byte 37: metadata value of 'k': found 2, expected a bool, 0 or 1");
  expect_error(
      Raw().header(0, 1).text("k").u32(10).u32(5),
      "byte 37: metadata value of 'k': found the end of the file after 4 bytes, expected 8 "
      "bytes");
  expect_error(Raw().header(0, 1).text("k").u32(8).u64(UINT64_MAX),
               "byte 37: text length of 'k': found 18446744073709551615, expected at most 0, since "
               "0 bytes are left in the file");
}

TEST(Hostile, Arrays) {
  const auto array = [](uint32_t type, uint64_t count) {
    return Raw().header(0, 1).text("k").u32(9).u32(type).u64(count);
  };
  expect_error(array(99, 1),
               "byte 37: type of the elements of 'k': found 99, expected a known "
               "type, 0 to 12");
  expect_error(array(12, uint64_t{1} << 61),
               "byte 41: array length of 'k': found 2305843009213693952, expected at most 0, since "
               "0 bytes are left in the file");
  expect_error(array(5, 3).data(11, 1),
               "byte 41: array length of 'k': found 3, expected at most 2, since 11 bytes are left "
               "in the file");
  expect_error(array(7, 3).number<uint8_t>(0).number<uint8_t>(1).number<uint8_t>(7),
               "byte 51: element 2 of 'k': found 7, expected a bool, 0 or 1");
  expect_error(
      array(8, 2).text("fine").u64(9),
      "byte 61: length of element 1 of 'k': found 9, expected at most 0, since 0 bytes are "
      "left in the file");
  Raw deep = Raw().header(0, 1).text("k").u32(9);
  for (int i = 0; i < 100000; ++i) deep.u32(9).u64(1);
  expect_error(deep,
               "byte 133: element 0 of 'k': found arrays nested more deeply, expected at most "
               "8 levels");
}

TEST(Hostile, DeepestArrayThatIsAllowed) {
  Raw deep = Raw().header(0, 1).text("k").u32(9);
  for (int i = 1; i < kMaxDepth; ++i) deep.u32(9).u64(1);
  deep.u32(0).u64(1).number<uint8_t>(7);
  const auto file = parse(deep.bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(preview(*file->find("k"), 9, 9), "[[[[[[[[7]]]]]]]]");
}

TEST(Hostile, Alignment) {
  const auto with = [](const Value& value) {
    return Raw().header(0, 1).entry("general.alignment", value);
  };
  const std::string expected = "expected a u32 that is a power of two or a multiple of 8";
  expect_error(with(Value{uint32_t{0}}),
               "byte 49: metadata value of 'general.alignment': found u32 0, " + expected);
  expect_error(with(Value{uint32_t{33}}),
               "byte 49: metadata value of 'general.alignment': found u32 33, " + expected);
  expect_error(with(Value{std::string("32")}),
               "byte 49: metadata value of 'general.alignment': found string \"32\", " + expected);
}

TEST(Hostile, TensorNames) {
  expect_error(Raw().header(1, 0).u64(UINT64_MAX).data(40, 1),
               "byte 24: length of the name of tensor 0: found 18446744073709551615, expected at "
               "most 40, since 40 bytes are left in the file");
  expect_error(Raw().header(1, 0).tensor("t\xed\xa0\x80", {1}, kF32, 0).data(4),
               "byte 33: name of tensor 0: found \"t\\xed\\xa0\\x80\", expected valid UTF-8");
  expect_error(Raw().header(2, 0).tensor("t", {8}, kF32, 0).tensor("t", {8}, kF32, 32).data(64),
               "byte 57: name of tensor 1: found 't' a second time, expected unique names");
}

TEST(Hostile, TensorShapes) {
  const auto with = [](const std::vector<uint64_t>& dims, uint32_t type) {
    return Raw().header(1, 0).tensor("t", dims, type, 0).data(64);
  };
  expect_error(with({}, kF32), "byte 33: number of dimensions of 't': found 0, expected 1 to 4");
  expect_error(with({1, 1, 1, 1, 1}, kF32),
               "byte 33: number of dimensions of 't': found 5, expected 1 to 4");
  expect_error(with({4, 0}, kF32), "byte 45: dimension 1 of 't': found 0, expected 1 or more");
  expect_error(with({1, 1, uint64_t{1} << 63}, kF32),
               "byte 53: dimension 2 of 't': found 9223372036854775808, expected less than 2^63");
  expect_error(with({uint64_t{1} << 32, uint64_t{1} << 31}, kF32),
               "byte 37: shape of 't': found [4294967296, 2147483648], expected fewer than 2^63 "
               "values");
  expect_error(
      with({uint64_t{1} << 62}, kF32),
      "byte 37: shape of 't': found [4611686018427387904], expected fewer than 2^63 bytes");
  expect_error(with({255, 256}, kQ4K),
               "byte 37: dimension 0 of 't': found 255, expected a multiple of 256, the block of "
               "Q4_K");
  for (const uint32_t type : {4u, 5u, 31u, 38u, 42u, UINT32_MAX})
    expect_error(with({256}, type),
                 fmt::format("byte 45: tensor type of 't': found {}, expected a known type (the "
                             "last one is {})",
                             type, quant::all_formats().back().id));
}

TEST(Hostile, TensorPlaces) {
  const auto two = [](uint64_t first, uint64_t second, size_t data) {
    return Raw()
        .header(2, 0)
        .tensor("a", {8}, kF32, first)
        .tensor("b", {9}, kF32, second)
        .data(data);
  };
  EXPECT_TRUE(parse(two(0, 32, 68).bytes).ok());
  EXPECT_TRUE(parse(two(64, 0, 96).bytes).ok()) << "any order";
  EXPECT_TRUE(parse(two(0, 320, 356).bytes).ok()) << "holes";
  expect_error(two(1, 64, 128),
               "byte 49: data offset of 'a': found 1, expected a multiple of the alignment, 32");
  expect_error(
      two(0, 0, 128),
      "byte 82: data offset of 'b': found 0, expected at least 32, the end of 'a': tensors "
      "must not overlap");
  expect_error(two(32, 0, 128),
               "byte 49: data offset of 'a': found 32, expected at least 36, the end of 'b': "
               "tensors must not overlap");
  // The header has 90 bytes, so that the data starts at 96.
  expect_error(
      two(0, 32, 67),
      "byte 82: data offset of 'b': found 32, 36 bytes of data from there, expected an end "
      "within the file: it has 163 bytes, and 1 more are missing (is it truncated?)");
  expect_error(two(0, 32, 0),
               "byte 49: data offset of 'a': found 0, 32 bytes of data from there, expected an end "
               "within the file: it has 96 bytes, and 68 more are missing (is it truncated?)");
  const uint64_t far = UINT64_MAX - 31;
  expect_error(two(0, far, 128),
               "byte 82: data offset of 'b': found 18446744073709551584, 36 bytes of data from "
               "there, expected an end within the file: it has 224 bytes, and 18446744073709551492 "
               "more are missing (is it truncated?)");
}

TEST(Hostile, NamesCannotDriveTheTerminal) {
  expect_error(Raw().header(0, 1).text("\x1b[2J\n").u32(99).data(9, 1),
               "byte 37: metadata type of '\\x1b[2J\\n': found 99, expected a known type, 0 to 12");
}

}  // namespace
}  // namespace lockstep::gguf
