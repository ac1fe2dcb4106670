#include "gguf/writer.h"

#include <csignal>

#include <sys/resource.h>
#include <sys/stat.h>

#include "gguf/test_support.h"

namespace lockstep::gguf {
namespace {

using namespace test;

const quant::FormatInfo* f32() {
  return &quant::info(quant::Format::kF32);
}

std::string create_error(const std::string& path, const std::vector<Entry>& metadata,
                         const std::vector<TensorPlan>& tensors) {
  const auto writer = Writer::create(path, metadata, tensors);
  if (!writer.ok()) return writer.error().message;
  ADD_FAILURE() << "created without an error";
  return "";
}

bool has(const std::string& text, const std::string& piece) {
  return text.find(piece) != std::string::npos;
}

TEST(Writer, WhatIsWrittenIsRead) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Random random(seed);
  const TempFolder folder;
  const std::string path = folder.file("m.gguf");
  for (int round = 0; round < 10; ++round) {
    const Model model = random_model(random);
    write_model(path, model, random);
    const auto file = File::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->version(), 3u);
    EXPECT_EQ(file->alignment(), 32);
    EXPECT_EQ(file->size_bytes(), static_cast<int64_t>(std::filesystem::file_size(path)));
    ASSERT_EQ(file->parts().size(), 1u);
    EXPECT_EQ(file->parts()[0].path, path);
    expect_holds(*file, model);
  }
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Writer, EveryAlignmentIsKept) {
  const uint64_t seed = fresh_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Random random(seed);
  const TempFolder folder;
  for (const uint32_t alignment : {1u, 2u, 4u, 8u, 16u, 24u, 32u, 40u, 64u, 4096u, 65536u}) {
    SCOPED_TRACE(alignment);
    Model model = random_model(random);
    model.metadata.push_back({"general.alignment", Value{alignment}});
    write_model(folder.file("m.gguf"), model, random);
    const auto file = File::open(folder.file("m.gguf"));
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->alignment(), alignment);
    expect_holds(*file, model);
    EXPECT_EQ(file->size_bytes() % alignment, 0) << "padding follows the last tensor";
  }
  for (const uint32_t alignment : {0u, 3u, 12u, 33u})
    EXPECT_TRUE(
        has(create_error(folder.file("x"), {{"general.alignment", Value{alignment}}}, {}),
            fmt::format("'general.alignment': found u32 {}, expected a u32 that is", alignment)));
}

TEST(Writer, AnEmptyModelIsAFile) {
  const TempFolder folder;
  Random random(1);
  write_model(folder.file("m.gguf"), {}, random);
  const auto file = File::open(folder.file("m.gguf"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_TRUE(file->metadata().empty());
  EXPECT_TRUE(file->tensors().empty());
}

TEST(Writer, PlansThatAreWrongAreErrorsAndLeaveNothing) {
  const TempFolder folder;
  const std::string path = folder.file("m.gguf");
  const auto* q4 = &quant::info(quant::Format::kQ4_K);
  EXPECT_TRUE(has(create_error(path, {{"k", Value{true}}, {"k", Value{false}}}, {}),
                  "metadata 'k': found it twice"));
  EXPECT_TRUE(has(create_error(path, {{"k\xff", Value{true}}}, {}),
                  "metadata 'k\\xff': found invalid UTF-8"));
  EXPECT_TRUE(has(create_error(path, {}, {{"t", f32(), {1}}, {"t", f32(), {1}}}),
                  "tensor 't': found it twice"));
  EXPECT_TRUE(has(create_error(path, {}, {{"t", f32(), {}}}),
                  "tensor 't': shape: found 0 dimensions, expected 1 to 4"));
  EXPECT_TRUE(has(create_error(path, {}, {{"t", f32(), {1, 0}}}),
                  "tensor 't': dimension 1: found 0, expected 1 or more"));
  EXPECT_TRUE(has(create_error(path, {}, {{"t", q4, {255, 2}}}),
                  "tensor 't': dimension 0: found 255, expected a multiple of 256, the block of "
                  "Q4_K"));
  EXPECT_TRUE(has(create_error(path, {}, {{"t", f32(), {INT64_MAX, 2}}}),
                  "expected fewer than 2^63 values"));
  EXPECT_TRUE(
      has(create_error(path, {}, {{"t", f32(), {INT64_MAX}}}), "expected fewer than 2^63 bytes"));
  EXPECT_TRUE(has(create_error(path, {}, {{"t", f32(), {1L << 60}}, {"u", f32(), {1L << 60}}}),
                  "tensor 'u': found more than 2^63 bytes"));
  Array deep;
  for (int i = 0; i < kMaxDepth; ++i) deep = Array{std::vector<Array>{deep}};
  EXPECT_TRUE(has(create_error(path, {{"deep", Value{deep}}}, {}), "at most 8 levels"));
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(Writer, BytesThatDoNotMatchThePlanAreRefused) {
  const TempFolder folder;
  const std::string path = folder.file("m.gguf");
  const std::vector<TensorPlan> plan = {{"a", f32(), {3}}, {"b", f32(), {2}}};
  const std::string bytes(20, 'x');
  {
    auto writer = Writer::create(path, {}, plan);
    ASSERT_TRUE(writer.ok());
    const auto over = writer->write(as_bytes(bytes).first(13));
    ASSERT_FALSE(over.ok());
    EXPECT_TRUE(has(over.error().message, "tensor 'a': found 13 bytes of data, expected 12"));
    ASSERT_TRUE(writer->write(as_bytes(bytes).first(12)).ok());
    ASSERT_TRUE(writer->write(as_bytes(bytes).first(5)).ok());
    const auto early = writer->finish();
    ASSERT_FALSE(early.ok());
    EXPECT_TRUE(has(early.error().message, "tensor 'b': found 5 bytes of data, expected 8"));
    ASSERT_TRUE(writer->write(as_bytes(bytes).first(3)).ok());
    const auto more = writer->write(as_bytes(bytes).first(1));
    ASSERT_FALSE(more.ok());
    EXPECT_TRUE(has(more.error().message, "expected none after the last tensor"));
  }
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(Writer, AnUnfinishedFileLeavesTheOldOneAlone) {
  const TempFolder folder;
  const std::string path = folder.file("m.gguf");
  write_file(path, "old");
  {
    auto writer = Writer::create(path, {}, std::vector<TensorPlan>{{"a", f32(), {3}}});
    ASSERT_TRUE(writer.ok());
    EXPECT_LE(folder.entries(), 2u) << "a part file, where the file system needs one";
    EXPECT_EQ(read_file(path), "old");
  }
  EXPECT_EQ(folder.entries(), 1u);
  EXPECT_EQ(read_file(path), "old");
}

TEST(Writer, PlacesThatCannotBeWrittenAreClearErrors) {
  const TempFolder folder;
  write_file(folder.file("plain"), "x");
  EXPECT_TRUE(has(create_error(folder.file("missing/m.gguf"), {}, {}),
                  "missing/m.gguf: cannot write: No such file or directory"));
  EXPECT_TRUE(has(create_error(folder.file("plain/m.gguf"), {}, {}),
                  "plain/m.gguf: cannot write: Not a directory"));
  EXPECT_TRUE(has(create_error(folder.file(""), {}, {}), "cannot write: found a folder"));
  if (::getuid() != 0) {  // root may write anywhere
    ::chmod(folder.file("").c_str(), 0500);
    EXPECT_TRUE(has(create_error(folder.file("m.gguf"), {}, {}), "Permission denied"));
    ::chmod(folder.file("").c_str(), 0700);
  }
  EXPECT_EQ(folder.entries(), 1u);
}

// A limit on the size of files stands in for a full disk: writing fails the same way.
TEST(Writer, AFullDiskIsAClearErrorAndLeavesNothing) {
  const TempFolder folder;
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 20, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  {
    const std::string path = folder.file("m.gguf");
    auto writer = Writer::create(path, {}, std::vector<TensorPlan>{{"a", f32(), {1 << 20}}});
    if (!writer.ok()) {
      message = writer.error().message;  // where the file system can reserve room
    } else {
      const std::string bytes(4 << 20, 'x');
      const auto wrote = writer->write(as_bytes(bytes));
      const auto done = writer->finish();
      message = !wrote.ok() ? wrote.error().message : !done.ok() ? done.error().message : "";
    }
  }
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(has(message, "m.gguf: cannot write")) << message;
  EXPECT_TRUE(has(message, "File too large")) << message;
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
}  // namespace lockstep::gguf
