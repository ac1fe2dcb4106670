// What a trace may hold at most, the same for all that read and write one.
#include "lockstep/detail/limits.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "trace/jsonl_import.h"
#include "trace/shard_writer.h"
#include "trace/trace.h"

namespace lockstep::trace {
namespace {

namespace fs = std::filesystem;

class Limits : public testing::Test {
 protected:
  // A trace of single rows of one number, at the given steps. `beside`: the name of a tensor with
  // very many rows that comes with each.
  Result<Trace> trace_of(const std::vector<StepInfo>& steps, int64_t checkpoints,
                         const std::string& beside = "") {
    fs::remove_all(folder_);
    Manifest manifest;
    manifest.engine.name = "test";
    for (int64_t i = 0; i < checkpoints; ++i)
      manifest.checkpoints.push_back({i == 0 ? "logits" : fmt::format("c{}", i), DType::kF32, 1});
    ShardWriter writer(folder_, manifest);
    EXPECT_TRUE(writer.start().ok());
    for (const StepInfo& step : steps) {
      std::vector<StoredPlan> plans = {{fmt::format("{}/logits", step.index), DType::kF32, {1, 1}}};
      if (!beside.empty()) plans.push_back({beside, DType::kF16, {1 << 20, 1}});
      EXPECT_TRUE(writer.begin_step(step, plans).ok());
      EXPECT_TRUE(writer.put(0, Buffer(4)).ok());
      if (!beside.empty()) {
        EXPECT_TRUE(writer.put(1, Buffer(2 << 20)).ok());
      }
      EXPECT_TRUE(writer.end_step(true).ok());
    }
    EXPECT_TRUE(writer.finish({}, 0).ok());
    return Trace::open(folder_);
  }

  Result<ImportOutcome> import(const std::string& checkpoint, const std::string& position) {
    fs::remove_all(folder_);
    const std::string log = (temporary_.path() / "log").string();
    std::ofstream(log) << fmt::format(R"({{"checkpoint":"{}","token_idx":{},"values":[1]}})",
                                      checkpoint, position)
                       << "\n";
    return import_jsonl(log, folder_);
  }

  const TemporaryFolder temporary_ = TemporaryFolder::create().value();
  const std::string folder_ = (temporary_.path() / "trace").string();
};

TEST_F(Limits, WhatImportTakesOpens) {
  for (const char* position : {"0", "16777215"}) {
    ASSERT_TRUE(import("a", position).ok()) << position;
    EXPECT_TRUE(Trace::open(folder_).ok()) << position;
  }
  for (const char* position : {"16777216", "20000000", "1e12"})
    EXPECT_FALSE(import("a", position).ok());
  ASSERT_TRUE(import(std::string(255, 'x'), "0").ok());
  EXPECT_TRUE(Trace::open(folder_).ok());
  for (const std::string& name :
       {std::string(256, 'x'), std::string(), std::string("\xff"), std::string("a\\u001b[31m")})
    EXPECT_FALSE(import(name, "0").ok()) << name;
}

TEST_F(Limits, RowsThatAManifestSpeaksOfAreThere) {
  EXPECT_TRUE(trace_of({{0, 0, 1 << 21, ""}}, 1).ok());
  const auto many = trace_of({{0, 0, 1 << 24, ""}}, 1);
  ASSERT_FALSE(many.ok());
  EXPECT_NE(many.error().message.find("speaks of 16777216 rows up to here, the shards hold 1"),
            std::string::npos)
      << many.error().message;
  std::vector<StepInfo> steps;
  for (int64_t i = 0; i < 2000; ++i) steps.push_back({i, i, 1, ""});
  EXPECT_TRUE(trace_of(steps, 1000).ok());
  EXPECT_FALSE(trace_of(steps, 2000).ok());
  // Rows that are no rows of the trace do not count.
  for (const char* beside : {"z/z", "z", "0/other", "00/c1", "1/c1", "0/", "/c1", "0/c1"})
    EXPECT_FALSE(
        trace_of({{0, 0, beside == std::string("0/c1") ? 1 : 1 << 23, ""}}, 2, beside).ok())
        << beside;
}

TEST_F(Limits, AStepHoldsSomething) {
  ASSERT_TRUE(trace_of({{0, 0, 1, ""}}, 1).ok());
  std::ifstream in(folder_ + "/manifest.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const size_t at = text.find("\"index\": 0");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 10, "\"index\": 7");
  std::ofstream(folder_ + "/manifest.json") << text;
  const auto trace = Trace::open(folder_);
  ASSERT_FALSE(trace.ok());
  EXPECT_NE(trace.error().message.find("holds nothing of step 7"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::trace
