// What models do compute: no alarm, however odd it looks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "base/test_effort.h"
#include "exec/registry.h"
#include "forensics/test_support.h"
#include "model/model.h"

namespace lockstep::forensics {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Clean : public testing::Test {
 protected:
  void expect_clean(const MemorySource& source) {
    const Report report = scan(source);
    EXPECT_TRUE(report.clean()) << "seed " << seed_ << "\n" << describe(report);
    EXPECT_TRUE(garbage_of(report).empty()) << "seed " << seed_ << "\n" << describe(report);
  }

  uint64_t seed_ = std::random_device{}();
  Random random_{seed_};
};

TEST_F(Clean, GaussianRowsOfAllTypesAndSizes) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    for (const int64_t width : {1, 2, 3, 4, 7, 10, 24, 64, 255, 257, 5000})
      for (const double scale : {1e-6, 1e-3, 1.0, 300.0}) {
        MemorySource source;
        for (int64_t position = 0; position < rounds(40); ++position)
          source.add("logits", position, gaussian_row(random_, dtype, width, scale));
        expect_clean(source);
      }
}

TEST_F(Clean, RoundedThroughSmallerTypes) {
  for (const bool half : {false, true}) {
    MemorySource source;
    for (int64_t position = 0; position < 200; ++position) {
      std::vector<double> values = gaussian(random_, 300);
      for (double& value : values) {
        const auto narrow = static_cast<float>(value);
        value = static_cast<double>(half ? half_to_float(float_to_half(narrow))
                                         : bfloat_to_float(float_to_bfloat(narrow)));
      }
      source.add("blk.0.output", position, make_row(DType::kF32, values));
    }
    expect_clean(source);
  }
}

TEST_F(Clean, HeavyTails) {
  MemorySource source;
  for (int64_t position = 0; position < 50; ++position) {
    std::vector<double> cauchy = gaussian(random_, 4096);
    // Of 200,000 such numbers one would be past all that models have, once in fifty times.
    for (double& value : cauchy) value = std::clamp(value / random_.gaussian(), -1e5, 1e5);
    source.add("blk.0.output", position, make_row(DType::kF32, cauchy));
  }
  for (int64_t position = 0; position < 50; ++position) {
    std::vector<double> lognormal = gaussian(random_, 4096);
    for (double& value : lognormal) value = std::exp(2.5 * value);
    source.add("blk.1.output", position, make_row(DType::kF32, lognormal));
  }
  expect_clean(source);
}

// A few fixed channels up to 1e5 times the rest, as large models have.
TEST_F(Clean, MassiveActivationsAreNamedAsSuch) {
  MemorySource source;
  for (int64_t position = 0; position < 20; ++position) {
    std::vector<double> values = gaussian(random_, 896, 0.1);
    values[138] = 1500 + random_.gaussian();
    values[533] = -14000;
    source.add("blk.4.output", position, make_row(DType::kF32, values));
  }
  const Report report = scan(source);
  EXPECT_TRUE(report.clean()) << describe(report);
  ASSERT_EQ(report.clusters.size(), 1u) << describe(report);
  EXPECT_EQ(report.clusters[0].kind, Kind::kMassive);
  EXPECT_NE(report.clusters[0].evidence.find("channel 533 leads at 20 of 20"), std::string::npos)
      << report.clusters[0].evidence;
}

TEST_F(Clean, ZerosOneHotAndSparseRows) {
  MemorySource source;
  for (int64_t position = 0; position < 20; ++position)
    source.add("a", position, make_row(DType::kF32, std::vector<double>(128)));
  for (int64_t position = 0; position < 20; ++position) {
    std::vector<double> values(128);
    values[static_cast<size_t>(random_.below(128))] = 1;
    source.add("b", position, make_row(DType::kF32, values));
  }
  for (int64_t position = 0; position < 20; ++position) {
    std::vector<double> values(1000, -0.0);
    for (int i = 0; i < 30; ++i)
      values[static_cast<size_t>(random_.below(1000))] = random_.gaussian();
    source.add("blk.0.ffn_out", position, make_row(DType::kF32, values));
  }
  for (int64_t position = 0; position < 20; ++position)
    source.add("constant", position, make_row(DType::kF32, std::vector<double>(64, 0.25)));
  expect_clean(source);
}

TEST_F(Clean, MaskedScoresAndTheirSoftmax) {
  MemorySource source;
  std::vector<std::vector<double>> all;
  for (int64_t position = 0; position < 60; ++position) {
    std::vector<double> scores(60, -kInfinity);
    for (int64_t i = 0; i <= position; ++i)
      scores[static_cast<size_t>(i)] = 25 * random_.gaussian();
    source.add("blk.0.attn_scores", position, make_row(DType::kF32, scores));
    all.push_back(scores);
  }
  for (int64_t position = 0; position < 60; ++position) {
    std::vector<double> probs = all[static_cast<size_t>(position)];
    double most = -kInfinity, sum = 0;
    for (const double score : probs) most = std::max(most, score);
    for (double& score : probs) sum += score = std::exp(score - most);
    for (double& score : probs) score /= sum;
    source.add("blk.0.attn_probs", position, make_row(DType::kF32, probs));
  }
  const Report report = scan(source);
  EXPECT_TRUE(report.clean()) << "seed " << seed_ << "\n" << describe(report);
  ASSERT_EQ(report.clusters.size(), 1u) << describe(report);
  EXPECT_EQ(report.clusters[0].kind, Kind::kMasked);
}

TEST_F(Clean, MaskedLogits) {
  MemorySource source;
  for (int64_t position = 0; position < 10; ++position) {
    std::vector<double> values = gaussian(random_, 500);
    for (size_t i = 400; i < 500; ++i) values[i] = -kInfinity;
    source.add("logits", position, make_row(DType::kF32, values));
  }
  expect_clean(source);
}

TEST_F(Clean, ActivationsThatReachZero) {
  MemorySource source;
  for (int64_t position = 0; position < 50; ++position) {
    std::vector<double> values = gaussian(random_, 2000, 20);
    for (double& value : values) value = value / (1 + std::exp(-value));  // down to 1e-38 and below
    source.add("blk.0.ffn_act", position, make_row(DType::kF32, values));
  }
  expect_clean(source);
}

// Seen in a model's logits: 190 to 230 in bfloat16 are the letters A to d, each before a C.
TEST_F(Clean, NumbersThatHappenToBePrintable) {
  for (const double center : {12.7, 50.7, 206.0, 3.6})
    for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
      MemorySource source;
      for (int64_t position = 0; position < 4; ++position) {
        std::vector<double> numbers(600);
        for (double& number : numbers) number = center * (1 + 0.025 * random_.gaussian());
        source.add("logits", position, make_row(dtype, numbers));
      }
      expect_clean(source);
    }
}

TEST_F(Clean, TheSameTokenGivesTheSameEmbedding) {
  MemorySource source;
  source.tokens = {5, 9, 5, 9};
  const Row five = gaussian_row(random_, DType::kF32, 64),
            nine = gaussian_row(random_, DType::kF32, 64);
  for (const char* name : {"embedding", "blk.0.attn_norm", "blk.0.v"})
    for (int64_t position = 0; position < 4; ++position)
      source.add(name, position, position % 2 == 0 ? five : nine);
  expect_clean(source);
  // A prompt of one token over and over gives the same rows in every layer.
  MemorySource same;
  same.tokens = {7, 7, 7};
  for (int64_t position = 0; position < 3; ++position) same.add("blk.2.output", position, five);
  expect_clean(same);
}

// Shows values to a source.
class Watcher : public op::Observer {
 public:
  Watcher(const op::Program& program, DType dtype) : program_(program), dtype_(dtype) {}
  void begin_step(int64_t first_position, int64_t tokens) override {
    first_ = first_position;
    tokens_ = tokens;
  }
  bool wants(op::ValueId id) const override { return program_.value(id).checkpoint; }
  void see(op::ValueId id, const View& view) override {
    const op::Value& value = program_.value(id);
    const bool scores = value.shape == op::Value::Shape::kScores;
    const int64_t rows = scores ? tokens_ : view.shape[0];
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<double> numbers;
      const int64_t width = view.shape.back();
      for (int64_t line = 0; line < (scores ? view.shape[0] : 1); ++line)
        for (int64_t i = 0; i < width; ++i)
          numbers.push_back(view.at((line * rows + row) * width + i));
      source.add(value.name, first_ + row, make_row(dtype_, numbers));
    }
  }
  void end_step(bool) override {}

  MemorySource source;

 private:
  const op::Program& program_;
  DType dtype_;
  int64_t first_ = 0, tokens_ = 0;
};

TEST_F(Clean, TheShippedModels) {
  for (const char* name :
       {"haiku-llama-f16", "haiku-llama-q4_k_m", "haiku-gpt2-f32", "haiku-qwen2-f16",
        "haiku-phi3-f16", "haiku-granite-f16", "haiku-moe-q4_k_m"}) {
    SCOPED_TRACE(name);
    const auto model = model::Model::load(fmt::format("{}/{}.gguf", LOCKSTEP_MODELS, name));
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto program = model->program(32);
    ASSERT_TRUE(program.ok());
    const auto device = exec::find_device("reference");
    ASSERT_TRUE(device.ok());
    auto executor = (*device)->create(*program, {});
    ASSERT_TRUE(executor.ok());
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
      (*executor)->rewind(0);
      Watcher watcher(*program, dtype);
      std::vector<exec::TokenId> tokens;
      for (int i = 0; i < 24; ++i)
        tokens.push_back(static_cast<exec::TokenId>(random_.below(program->vocabulary)));
      watcher.source.tokens = tokens;
      const auto logits = (*executor)->run({tokens, true, &watcher, nullptr});
      ASSERT_TRUE(logits.ok());
      expect_clean(watcher.source);
    }
  }
}

}  // namespace
}  // namespace lockstep::forensics
