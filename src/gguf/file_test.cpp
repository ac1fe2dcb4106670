#include "gguf/file.h"

#include <cmath>
#include <limits>

#include <sys/mman.h>

#include "gguf/test_support.h"

namespace lockstep::gguf {
namespace {

using namespace test;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Array strings(std::vector<std::string> items) {
  return Array{std::move(items)};
}

class Typed : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<Entry> entries = {
        {"u8", {uint8_t{255}}},
        {"i8", {int8_t{-128}}},
        {"u16", {uint16_t{65535}}},
        {"i16", {int16_t{-32768}}},
        {"u32", {uint32_t{4294967295}}},
        {"i32", {int32_t{-5}}},
        {"u64", {uint64_t{1} << 62}},
        {"big", {UINT64_MAX}},
        {"i64", {INT64_MIN}},
        {"f32", {-0.0f}},
        {"f64", {1e300}},
        {"bool", {true}},
        {"text", {std::string("hällo")}},
        {"texts", {strings({"a", "", "b"})}},
        {"u8s", {Array{std::vector<uint8_t>{0, 255}}}},
        {"i64s", {Array{std::vector<int64_t>{INT64_MIN, INT64_MAX}}}},
        {"u64s", {Array{std::vector<uint64_t>{1, UINT64_MAX}}}},
        {"f32s", {Array{std::vector<float>{1.5f, -0.0f}}}},
        {"f64s", {Array{std::vector<double>{0.5, -kInfinity}}}},
        {"f64s.big", {Array{std::vector<double>{0.5, 1e300}}}},
        {"none", {strings({})}},
        {"nested", {Array{std::vector<Array>{strings({"x"}), strings({})}}}},
    };
    raw_.header(0, entries.size());
    for (const Entry& entry : entries) raw_.entry(entry.key, entry.value);
    auto parsed = parse(raw_.bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    file_.emplace(std::move(*parsed));
  }

  Raw raw_;
  std::optional<File> file_;
};

template <class T>
std::string message(const Result<T>& result) {
  return result.ok() ? "no error" : result.error().message;
}

TEST_F(Typed, IntegersOfAnyWidth) {
  EXPECT_EQ(*file_->integer("u8"), 255);
  EXPECT_EQ(*file_->integer("i8"), -128);
  EXPECT_EQ(*file_->integer("u16"), 65535);
  EXPECT_EQ(*file_->integer("i16"), -32768);
  EXPECT_EQ(*file_->integer("u32"), 4294967295);
  EXPECT_EQ(*file_->integer("i32"), -5);
  EXPECT_EQ(*file_->integer("u64"), int64_t{1} << 62);
  EXPECT_EQ(*file_->integer("i64"), INT64_MIN);
  EXPECT_EQ(*file_->integer_or("u8", 3), 255);
  EXPECT_EQ(*file_->integer_or("absent", 3), 3);
  EXPECT_EQ(message(file_->integer("big")),
            "test.gguf: metadata 'big': found u64 18446744073709551615, expected an integer below "
            "2^63");
  EXPECT_EQ(message(file_->integer("absent")),
            "test.gguf: metadata 'absent': found no such key, expected an integer below 2^63");
  EXPECT_EQ(message(file_->integer_or("bool", 3)),
            "test.gguf: metadata 'bool': found bool true, expected an integer below 2^63");
  EXPECT_FALSE(file_->integer("f32").ok());
  EXPECT_FALSE(file_->integer("u8s").ok());
}

TEST_F(Typed, OtherScalars) {
  EXPECT_TRUE(std::signbit(*file_->real("f32")));
  EXPECT_EQ(*file_->real("f64"), 1e300);
  EXPECT_EQ(message(file_->real("u8")),
            "test.gguf: metadata 'u8': found u8 255, expected a float (f32 or f64)");
  EXPECT_EQ(*file_->boolean("bool"), true);
  EXPECT_EQ(message(file_->boolean("u8")),
            "test.gguf: metadata 'u8': found u8 255, expected a bool");
  EXPECT_EQ(*file_->text("text"), "hällo");
  EXPECT_EQ(*file_->text_or("absent", "x"), "x");
  EXPECT_EQ(message(file_->text_or("texts", "x")),
            "test.gguf: metadata 'texts': found string[3] [\"a\", \"\", \"b\"], expected a string");
}

TEST_F(Typed, Arrays) {
  EXPECT_EQ(**file_->texts("texts"), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_TRUE((*file_->texts("none"))->empty());
  EXPECT_EQ(*file_->integers("u8s"), (std::vector<int64_t>{0, 255}));
  EXPECT_EQ(*file_->integers("i64s"), (std::vector<int64_t>{INT64_MIN, INT64_MAX}));
  EXPECT_EQ(*file_->reals("f32s"), (std::vector<float>{1.5f, -0.0f}));
  EXPECT_EQ(*file_->reals("f64s"),
            (std::vector<float>{0.5f, -std::numeric_limits<float>::infinity()}));
  EXPECT_FALSE(file_->reals("f64s.big").ok()) << "a finite number must not become infinity";
  EXPECT_FALSE(file_->integers("u64s").ok());
  EXPECT_EQ(message(file_->integers("none")),
            "test.gguf: metadata 'none': found string[0] [], expected an array of integers below "
            "2^63");
  EXPECT_EQ(message(file_->texts("u8s")),
            "test.gguf: metadata 'u8s': found u8[2] [0, 255], expected an array of strings");
  EXPECT_EQ(message(file_->reals("text")),
            "test.gguf: metadata 'text': found string \"hällo\", expected an array of floats (f32 "
            "or f64)");
  EXPECT_EQ(message(file_->texts("absent")),
            "test.gguf: metadata 'absent': found no such key, expected an array of strings");
}

TEST_F(Typed, Previews) {
  EXPECT_EQ(preview(*file_->find("nested"), 9, 9), "[[\"x\"], []]");
  EXPECT_EQ(preview(*file_->find("texts"), 2, 9), "[\"a\", \"\", … 3 in all]");
  EXPECT_EQ(preview(*file_->find("text"), 2, 3), "\"hä…\"");
  EXPECT_EQ(preview(*file_->find("f32"), 2, 3), "-0");
  EXPECT_EQ(type_name(*file_->find("nested")), "array[2]");
  EXPECT_EQ(type_name(*file_->find("u8")), "u8");
}

// The pages of tensor data cannot be read here: touching one would end the test.
TEST(File, ParsingTouchesTheHeaderOnly) {
  constexpr size_t kPage = 4096;
  constexpr size_t kBytes = 64 * kPage;
  Raw raw;
  raw.header(2, 1).entry("general.alignment", {uint32_t{kPage}});
  raw.tensor("a", {kPage}, 0, 0).tensor("b", {kPage, 2}, 1, 4 * kPage).data(0, kPage);
  void* pages = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  std::memcpy(pages, raw.bytes.data(), raw.bytes.size());
  ASSERT_EQ(raw.bytes.size(), kPage);
  ASSERT_EQ(::mprotect(static_cast<char*>(pages) + kPage, kBytes - kPage, PROT_NONE), 0);
  {
    const auto file = File::parse({static_cast<const std::byte*>(pages), kBytes}, "x");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->tensor("b")->file_offset, static_cast<int64_t>(5 * kPage));
    EXPECT_EQ(file->tensor("b")->data.size(), 4 * kPage);
    EXPECT_EQ(file->tensor("b")->shape(), "[4096, 2]");
    EXPECT_EQ(file->tensor("b")->values(), 8192);
    EXPECT_EQ(file->tensor("c"), nullptr);
    EXPECT_TRUE(file->parts().empty());
  }
  ::munmap(pages, kBytes);
}

TEST(File, WhatCannotBeOpenedIsAnError) {
  const TempFolder folder;
  EXPECT_EQ(message(File::open(folder.file("none.gguf"))),
            folder.file("none.gguf") + ": cannot open: No such file or directory");
  EXPECT_NE(message(File::open(folder.file(""))).find("not a regular file"), std::string::npos);
  write_file(folder.file("empty.gguf"), "");
  EXPECT_EQ(message(File::open(folder.file("empty.gguf"))),
            folder.file("empty.gguf") +
                ": byte 0: magic: found the end of the file after 0 bytes, expected 4 bytes");
}

TEST(File, RealVocabulariesOpen) {
  const char* shared = std::getenv("LOCKSTEP_SHARED");
  if (shared == nullptr || !std::filesystem::is_directory(std::string(shared) + "/vocabs"))
    GTEST_SKIP() << "LOCKSTEP_SHARED has no vocabs/";
  const std::vector<std::pair<std::string, size_t>> vocabularies = {{"gpt-2", 50257},
                                                                    {"llama-spm", 32000},
                                                                    {"llama-bpe", 128256},
                                                                    {"phi-3", 32064},
                                                                    {"qwen2", 151936}};
  for (const auto& [name, size] : vocabularies) {
    const auto file = File::open(fmt::format("{}/vocabs/{}.gguf", shared, name));
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto tokens = file->texts("tokenizer.ggml.tokens");
    ASSERT_TRUE(tokens.ok()) << tokens.error().message;
    EXPECT_EQ((*tokens)->size(), size) << name;
    const auto types = file->integers("tokenizer.ggml.token_type");
    ASSERT_TRUE(types.ok()) << types.error().message;
    EXPECT_EQ(types->size(), size) << name;
  }
}

}  // namespace
}  // namespace lockstep::gguf
