// Import and export, there and back.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "trace/checkpoints.h"
#include "trace/export.h"
#include "trace/jsonl_import.h"
#include "trace/shard_writer.h"
#include "trace/trace.h"

namespace lockstep::trace {
namespace {

namespace fs = std::filesystem;

class Exchange : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  const TemporaryFolder temporary_ = TemporaryFolder::create().value();
  const fs::path folder_ = temporary_.path();
};

std::string line(const std::string& checkpoint, int64_t position, const std::string& values,
                 const std::string& more = R"("dtype":"f32","shape":"[5]")") {
  return fmt::format(R"({{"checkpoint":"{}","team":"toy","token_idx":{},{},"values":[{}]}})"
                     "\n",
                     checkpoint, position, more, values);
}

TEST_F(Exchange, ALogBecomesATrace) {
  write("log", line("layer_0_output", 3, "1,2,3") + line("logits", 3, "0.5,-1") +
                   line("logits", 0, "\"inf\",7") + line("layer_0_output", 2, "4,5,6"));
  const auto outcome = import_jsonl(path("log"), path("trace"));
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_TRUE(outcome->problems.empty());
  EXPECT_EQ(outcome->rows, 4);
  EXPECT_EQ(outcome->positions, 3);
  const auto trace = Trace::open(path("trace"));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_TRUE(trace->manifest().complete);
  EXPECT_EQ(trace->manifest().engine.name, "toy");
  ASSERT_EQ(trace->manifest().checkpoints.size(), 2u);
  EXPECT_EQ(trace->manifest().checkpoints[0].name, "blk.0.output");
  EXPECT_EQ(trace->manifest().checkpoints[0].width, 3);
  EXPECT_EQ(trace->manifest().checkpoints[0].full_width, 5);
  EXPECT_EQ(positions_of(*trace, "blk.0.output"), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(positions_of(*trace, "logits"), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(trace->row("blk.0.output", 2)->at(0, 1), 5);
  EXPECT_TRUE(std::isinf(trace->row("logits", 0)->at(0, 0)));
  EXPECT_FALSE(trace->row("logits", 2).has_value());
}

TEST_F(Exchange, WhatIsLeftOutIsTold) {
  write("log", line("a", 0, "1,2") + line("a", 0, "3,4") + line("a", 1, "1,2,3") + "oops\n" +
                   R"({"checkpoint":"a","team":"other","token_idx":4,"values":[1,2]})" + "\n" +
                   line("a", 2, "5,6") + R"({"checkpoint":"a","tea)");
  const auto outcome = import_jsonl(path("log"), path("trace"));
  ASSERT_TRUE(outcome.ok());
  std::vector<std::string> told;
  for (const JsonlProblem& problem : outcome->problems) told.push_back(to_text(problem, "log"));
  EXPECT_EQ(
      told,
      (std::vector<std::string>{
          "log:2:1: position 0 has 'a' already; the first is taken (did two runs write to "
          "the log?)",
          "log:3:1: 3 values of 'a'; its first line has 2", "log:4:1: found 'oops', expected '{'",
          "log:5:1: team 'other'; a trace is of one engine, here 'toy'",
          "log:7:23: the last line is cut off: the line ends, expected the end of a "
          "string"}));
  EXPECT_EQ(outcome->rows, 2);
  EXPECT_EQ(Trace::open(path("trace"))->row("a", 0)->at(0, 0), 1);
}

TEST_F(Exchange, TheSameProblemOfManyLinesIsToldOnce) {
  std::string text;
  for (int run = 0; run < 3; ++run)
    for (int position = 0; position < 20; ++position)
      text +=
          line("a", position, "1,2", R"("dtype":"q9")") + fmt::format("progress {}\n", position);
  write("log", text);
  const auto outcome = import_jsonl(path("log"), path("trace"));
  ASSERT_TRUE(outcome.ok());
  std::vector<std::string> told;
  for (const JsonlProblem& problem : outcome->problems) told.push_back(to_text(problem, "log"));
  EXPECT_EQ(told, (std::vector<std::string>{
                      "log:1:54: dtype 'q9' is not known; taken as f32 (and 59 more lines like it, "
                      "the last is line 119)",
                      "log:2:1: found 'progress 0', expected '{' (and 59 more lines like it, the "
                      "last is line 120)",
                      "log:41:1: position 0 has 'a' already; the first is taken (did two runs "
                      "write to the log?) (and 39 more lines like it, the last is line 119)"}));
  EXPECT_EQ(outcome->rows, 20);
}

TEST_F(Exchange, GarbageSurvivesTheTypeThatALogClaims) {
  write("log", line("a", 0, "1e30,2", R"("dtype":"f16")") +
                   line("b", 0, "0.333251953125,2", R"("dtype":"f16")"));
  ASSERT_TRUE(import_jsonl(path("log"), path("trace")).ok());
  const auto trace = Trace::open(path("trace"));
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->checkpoint("a")->dtype, DType::kF32);
  EXPECT_NEAR(trace->row("a", 0)->at(0, 0), 1e30, 1e24);
  EXPECT_EQ(trace->checkpoint("b")->dtype, DType::kF16);
  EXPECT_EQ(trace->row("b", 0)->at(0, 0), 0.333251953125);
}

TEST_F(Exchange, RefusesWhatItCannotUse) {
  const auto message = [&](const std::string& log, const std::string& folder) {
    const auto outcome = import_jsonl(path(log), path(folder));
    return outcome.ok() ? "no error" : outcome.error().message;
  };
  write("empty", "\n");
  write("bad", "nothing\n");
  write("good", line("a", 0, "1"));
  EXPECT_EQ(message("empty", "t"), path("empty") + ": no lines");
  EXPECT_EQ(message("bad", "t"), path("bad") + ": no line can be read; the first: " + path("bad") +
                                     ":1:1: found 'nothing', expected '{'");
  EXPECT_NE(message("missing", "t").find("cannot open"), std::string::npos);
  EXPECT_FALSE(fs::exists(path("t")));
  fs::create_directory(path("used"));
  write("used/file", "x");
  EXPECT_EQ(message("good", "used"),
            path("used") + ": exists and is not empty; a trace is never written over");
}

// A trace with rows of every type, scores, and logits of the last position only.
class ExportTest : public Exchange {
 protected:
  void SetUp() override {
    Exchange::SetUp();
    Manifest manifest;
    manifest.engine.name = "test";
    manifest.checkpoints = {{"embedding", DType::kF32, 7, 0},
                            {"blk.0.attn_scores", DType::kF32, 2, 0},
                            {"blk.0.output", DType::kBF16, 3, 0},
                            {"logits", DType::kF64, 5, 0}};
    fs::create_directory(path("trace"));
    ShardWriter writer(path("trace"), manifest);
    ASSERT_TRUE(writer.start().ok());
    put(writer, 0, 0, 3);
    put(writer, 1, 3, 1);
    ASSERT_TRUE(writer.finish({1, 2, 3, 4}, 0).ok());
  }

  void put(ShardWriter& writer, int64_t step, int64_t first, int64_t tokens) {
    const auto key = [&](const char* name) { return fmt::format("{}/{}", step, name); };
    std::vector<StoredPlan> plans = {
        {key("embedding"), DType::kF32, {tokens, 7}},
        {key("blk.0.attn_scores"), DType::kF32, {2, tokens, first + tokens}},
        {key("blk.0.output"), DType::kBF16, {tokens, 3}},
        {key("logits"), DType::kF64, {1, 5}}};
    ASSERT_TRUE(writer.begin_step({step, first, tokens, ""}, plans).ok());
    for (size_t i = 0; i < plans.size(); ++i) {
      std::vector<std::byte> bytes(static_cast<size_t>(plans[i].size_bytes()));
      for (size_t at = 0; at < bytes.size();
           at += static_cast<size_t>(size_bytes(plans[i].dtype))) {
        const double value = random_.gaussian();
        const auto narrow = static_cast<float>(value);
        const uint16_t bfloat = float_to_bfloat(narrow);
        if (plans[i].dtype == DType::kF64) std::memcpy(&bytes[at], &value, 8);
        if (plans[i].dtype == DType::kF32) std::memcpy(&bytes[at], &narrow, 4);
        if (plans[i].dtype == DType::kBF16) std::memcpy(&bytes[at], &bfloat, 2);
      }
      ASSERT_TRUE(writer.put(i, std::move(bytes)).ok());
    }
    ASSERT_TRUE(writer.end_step(true).ok());
  }

  std::vector<std::string> names_ = {"embedding", "blk.0.attn_scores", "blk.0.output", "logits"};
  Random random_{std::random_device{}()};
};

TEST_F(ExportTest, ToJsonlAndBack) {
  const auto trace = Trace::open(path("trace"));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const auto lines =
      export_jsonl(*trace, {"embedding", "blk.0.output", "logits"}, 1000, path("log"));
  ASSERT_TRUE(lines.ok());
  EXPECT_EQ(*lines, 4 + 4 + 2);
  const auto outcome = import_jsonl(path("log"), path("back"));
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_TRUE(outcome->problems.empty());
  const auto back = Trace::open(path("back"));
  ASSERT_TRUE(back.ok());
  for (const char* name : {"embedding", "blk.0.output", "logits"}) {
    EXPECT_EQ(positions_of(*back, name), positions_of(*trace, name));
    EXPECT_EQ(back->checkpoint(name)->dtype, trace->checkpoint(name)->dtype);
    EXPECT_EQ(back->checkpoint(name)->full_width, 0);
    for (const int64_t position : positions_of(*trace, name))
      for (int64_t i = 0; i < trace->row(name, position)->width; ++i)
        EXPECT_EQ(back->row(name, position)->at(0, i), trace->row(name, position)->at(0, i));
  }
  EXPECT_EQ(positions_of(*trace, "logits"), (std::vector<int64_t>{2, 3}));
}

TEST_F(ExportTest, FewValuesAndScores) {
  const auto trace = Trace::open(path("trace"));
  ASSERT_TRUE(trace.ok());
  ASSERT_TRUE(export_jsonl(*trace, names_, 4, path("log")).ok());
  auto reader = JsonlReader::open(path("log"));
  ASSERT_TRUE(reader.ok());
  int scores = 0;
  while (const auto record = reader->next()) {
    if (record->checkpoint != "blk.0.attn_scores") continue;
    ++scores;
    EXPECT_EQ(record->shape, (std::vector<int64_t>{2, record->position < 3 ? 3 : 4}));
    ASSERT_EQ(record->values.size(), 4u);
    const auto row = trace->row("blk.0.attn_scores", record->position);
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(static_cast<float>(record->values[static_cast<size_t>(i)]),
                static_cast<float>(row->at(i / row->width, i % row->width)));
  }
  EXPECT_EQ(scores, 4);
}

// The archive by its own structure; tests/cli/scan_test.py reads it with Python.
TEST_F(ExportTest, NpzHasTheBytesOfTheTrace) {
  const auto trace = Trace::open(path("trace"));
  ASSERT_TRUE(trace.ok());
  const auto arrays = export_npz(*trace, names_, path("out.npz"));
  ASSERT_TRUE(arrays.ok());
  EXPECT_EQ(*arrays, 1 + 4 + 1);
  const std::string bytes = read("out.npz");
  EXPECT_TRUE(bytes.starts_with("PK\x03\x04"));
  for (const char* text : {"positions.npy", "embedding.npy", "logits.positions.npy",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 7), }",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 4), }",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }",
                           "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 5), }",
                           "{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }"})
    EXPECT_NE(bytes.find(text), std::string::npos) << text;
  const auto row = trace->row("embedding", 3);
  EXPECT_NE(bytes.find(std::string(reinterpret_cast<const char*>(row->data), 28)),
            std::string::npos);
}

TEST(SelectNames, SetsAndGlobs) {
  const std::vector<std::string> names = {"embedding",    "blk.0.q",    "blk.0.attn_scores",
                                          "blk.0.output", "final_norm", "logits"};
  const auto chosen = [&](const char* set) { return *select_names(names, set); };
  EXPECT_EQ(chosen("all"), names);
  EXPECT_EQ(chosen("ops"), (std::vector<std::string>{"embedding", "blk.0.q", "blk.0.output",
                                                     "final_norm", "logits"}));
  EXPECT_EQ(chosen("layers"),
            (std::vector<std::string>{"embedding", "blk.0.output", "final_norm", "logits"}));
  EXPECT_EQ(chosen("logits,blk.*.q"), (std::vector<std::string>{"blk.0.q", "logits"}));
  EXPECT_NE(select_names(names, "logits,x").error().message.find("no checkpoint matches 'x'"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::trace
