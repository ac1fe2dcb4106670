#include "trace/shard_writer.h"

#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "trace/trace.h"

namespace lockstep::trace {
namespace {

constexpr int64_t kWidth = 1 << 20;

// Steps of 4 MB each, as many as wait with the last.
std::set<std::string> write_steps(const std::string& folder, int64_t steps, int64_t waiting) {
  Manifest manifest;
  manifest.engine.name = "test";
  manifest.checkpoints.push_back({"logits", DType::kF32, kWidth});
  ShardWriter writer(folder, manifest);
  EXPECT_TRUE(writer.start().ok());
  std::vector<float> numbers(static_cast<size_t>(kWidth));
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<float>(step * 1000) + static_cast<float>(i % 997);
    EXPECT_TRUE(writer
                    .begin_step({step, step, 1, ""},
                                {{fmt::format("{}/logits", step), DType::kF32, {1, kWidth}}})
                    .ok());
    EXPECT_TRUE(writer.put(0, writer.buffers().copy(std::as_bytes(std::span(numbers)))).ok());
    EXPECT_TRUE(writer.end_step(true, waiting).ok());
  }
  EXPECT_TRUE(writer.finish(std::vector<int32_t>(static_cast<size_t>(steps), 1), 0).ok());
  const auto trace = Trace::open(folder);
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->positions(), steps);
  std::set<std::string> shards;
  for (const StepInfo& step : trace->manifest().steps) shards.insert(step.shard);
  std::vector<double> row(static_cast<size_t>(kWidth));
  for (int64_t step = 0; step < steps; ++step) {
    const auto found = trace->row("logits", step);
    EXPECT_TRUE(found);
    found->read(0, 0, kWidth, row.data());
    for (size_t i = 0; i < row.size(); i += 101)
      EXPECT_EQ(row[i], static_cast<double>(step * 1000) + static_cast<double>(i % 997));
  }
  return shards;
}

TEST(ShardWriter, SeveralShardsAtOnceHoldWhatOneAfterAnotherDo) {
  const auto temporary = TemporaryFolder::create().value();
  // Four steps fill a shard, whoever waits; what is old is written sooner.
  for (const int64_t waiting : {int64_t{0}, int64_t{1} << 30})
    EXPECT_GE(
        write_steps((temporary.path() / fmt::to_string(waiting)).string(), 23, waiting).size(), 6U);
}

}  // namespace
}  // namespace lockstep::trace
