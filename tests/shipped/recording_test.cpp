// What a trace holds is what the executor computed, and recording changes no bit of the result, on
// every device that there is.
#include <bit>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "exec/registry.h"
#include "model/model.h"
#include "trace/recorder.h"
#include "trace/trace.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Recording : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto model = model::Model::load(LOCKSTEP_MODELS "/haiku-phi3-q4_k_m.gguf");
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::make_unique<model::Model>(*std::move(model));
    auto program = model_->program(128);
    ASSERT_TRUE(program.ok()) << program.error().message;
    program_ = *std::move(program);
    for (int i = 0; i < 80; ++i) tokens_.push_back((i * 37 + 11) % 600);  // past phi3's window
  }

  std::unique_ptr<exec::Executor> executor() {
    auto out = (*exec::find_device(GetParam()))->create(program_, {});
    EXPECT_TRUE(out.ok()) << out.error().message;
    return *std::move(out);
  }

  std::unique_ptr<trace::Recorder> recorder(DType dtype, const std::string& checkpoints,
                                            bool last_logits = false) {
    trace::RecordOptions options;
    options.folder = folder_;
    options.checkpoints = checkpoints;
    options.last_logits = last_logits;
    trace::Manifest start;
    start.engine.name = "test";
    start.tokens = tokens_;
    start.prompt_tokens = 40;
    auto out = trace::Recorder::create(program_, dtype, options, start);
    EXPECT_TRUE(out.ok()) << out.error().message;
    return *std::move(out);
  }

  // A prompt in pieces, then token by token; all logits rows, as doubles.
  std::vector<double> run(exec::Executor& executor, op::Observer* observer) {
    std::vector<double> logits;
    size_t first = 0;
    for (const size_t count :
         {size_t{33}, size_t{7}, size_t{30}, size_t{1}, size_t{1}, size_t{1}}) {
      exec::Step step;
      step.tokens = std::span(tokens_).subspan(first, count);
      step.all_logits = true;
      step.observer = observer;
      const auto view = executor.run(step);
      EXPECT_TRUE(view.ok()) << view.error().message;
      for (int64_t i = 0; i < view->size(); ++i) logits.push_back(view->at(i));
      first += count;
    }
    return logits;
  }

  static constexpr int64_t kPositions = 73;

  const TemporaryFolder temporary_ = TemporaryFolder::create().value();
  const std::string folder_ = (temporary_.path() / "trace").string();
  std::unique_ptr<model::Model> model_;
  op::Program program_;
  std::vector<exec::TokenId> tokens_;
};

// Remembers rows by name and position.
class RowKeeper : public op::Observer {
 public:
  explicit RowKeeper(const op::Program& program) : program_(program) {}
  void begin_step(int64_t first_position, int64_t tokens) override {
    first_ = first_position;
    tokens_ = tokens;
  }
  bool wants(op::ValueId id) const override { return program_.value(id).checkpoint; }
  void see(op::ValueId id, const View& view) override {
    const bool scores = view.shape.size() == 3;
    const int64_t lines = scores ? view.shape[0] : 1;
    const int64_t width = view.shape.back();
    for (int64_t t = 0; t < tokens_; ++t) {
      auto& row = rows[{program_.value(id).name, first_ + t}];
      for (int64_t line = 0; line < lines; ++line)
        for (int64_t i = 0; i < width; ++i)
          row.push_back(view.at(line * tokens_ * width + t * width + i));
    }
  }
  std::map<std::pair<std::string, int64_t>, std::vector<double>> rows;

 private:
  const op::Program& program_;
  int64_t first_ = 0;
  int64_t tokens_ = 0;
};

std::vector<uint64_t> bits(const std::vector<double>& values) {
  std::vector<uint64_t> out;
  for (const double value : values) out.push_back(std::bit_cast<uint64_t>(value));
  return out;
}

TEST_P(Recording, ChangesNoBitAndHoldsEveryValue) {
  const auto plain = executor();
  const std::vector<double> expected = run(*plain, nullptr);
  const auto watched = executor();
  const auto recording = recorder(watched->dtype(), "all");
  RowKeeper keeper(program_);
  op::Observers both;
  both.add(recording.get());
  both.add(&keeper);
  EXPECT_EQ(bits(run(*watched, &both)), bits(expected));
  const auto finished = recording->finish(tokens_);
  ASSERT_TRUE(finished.ok()) << finished.error().message;

  const auto trace = trace::Trace::open(folder_);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_TRUE(trace->manifest().complete);
  EXPECT_EQ(trace->positions(), kPositions);
  EXPECT_EQ(trace->manifest().steps.size(), 6u);
  size_t compared = 0;
  for (const auto& [key, row] : keeper.rows) {
    const auto stored = trace->row(key.first, key.second);
    ASSERT_TRUE(stored) << key.first << " at " << key.second;
    std::vector<double> values;
    for (int64_t line = 0; line < stored->lines; ++line)
      for (int64_t i = 0; i < stored->width; ++i) values.push_back(stored->at(line, i));
    ASSERT_EQ(bits(values), bits(row)) << key.first << " at " << key.second;
    ++compared;
  }
  EXPECT_EQ(compared, trace->manifest().checkpoints.size() * kPositions);
  EXPECT_FALSE(trace->row("logits", kPositions));
  EXPECT_FALSE(trace->row("nothing", 0));
}

TEST_P(Recording, LastLogitsAreTheRowsThatAreSampledFrom) {
  const auto device = executor();
  const auto recording = recorder(device->dtype(), "logits", true);
  EXPECT_FALSE(recording->wants_all_logits());
  const std::vector<double> logits = run(*device, recording.get());
  ASSERT_TRUE(recording->finish(tokens_).ok());
  const auto trace = trace::Trace::open(folder_);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  for (const int64_t position : {int64_t{32}, int64_t{39}, int64_t{69}, int64_t{70}, int64_t{72}}) {
    const auto row = trace->row("logits", position);
    ASSERT_TRUE(row) << position;
    for (int64_t i = 0; i < row->width; ++i)
      ASSERT_EQ(row->at(0, i), logits[static_cast<size_t>(position * row->width + i)]);
  }
  EXPECT_FALSE(trace->row("logits", 0));
  EXPECT_FALSE(trace->row("logits", 68));
}

TEST_P(Recording, WithoutFinishItIsReadableAndNotComplete) {
  const auto device = executor();
  {
    const auto recording = recorder(device->dtype(), "layers");
    run(*device, recording.get());
  }
  const auto trace = trace::Trace::open(folder_);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_FALSE(trace->manifest().complete);
  EXPECT_EQ(trace->positions(), kPositions);
}

TEST_P(Recording, AStepThatFailedLeavesNothing) {
  const auto device = executor();
  const auto recording = recorder(device->dtype(), "ops");
  std::atomic<bool> cancel = false;
  exec::Step step;
  step.tokens = std::span(tokens_).first(3);
  step.all_logits = recording->wants_all_logits();
  step.observer = recording.get();
  step.cancel = &cancel;
  ASSERT_TRUE(device->run(step).ok());
  cancel = true;
  EXPECT_FALSE(device->run(step).ok());
  EXPECT_EQ(device->positions(), 3);
  cancel = false;
  ASSERT_TRUE(device->run(step).ok());
  ASSERT_TRUE(recording->finish(tokens_).ok());
  const auto trace = trace::Trace::open(folder_);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->manifest().steps.size(), 2u);
  EXPECT_EQ(trace->positions(), 6);
}

std::vector<const char*> device_names() {
  std::vector<const char*> names;
  for (const exec::Device& device : exec::devices())
    if (device.available().ok()) names.push_back(device.name.data());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Devices, Recording, ::testing::ValuesIn(device_names()));

}  // namespace
}  // namespace lockstep
