// Costs of single tensors against what they are defined as: a whole pass with one tensor exchanged.
#include <algorithm>

#include <gtest/gtest.h>

#include "quality/distributions.h"
#include "quality/piece.h"
#include "quality/program_weights.h"
#include "quality/quality.h"
#include "quality/test_models.h"

namespace lockstep::quality {
namespace {

using Rank = ModelTest;

// The mean divergence from `reference` of `base` with one tensor of `other`, by whole passes.
double whole_passes(const op::Program& reference, const op::Program& base, const op::Program& other,
                    const Tensor& tensor, const std::vector<Window>& windows,
                    const Setting& setting) {
  op::Program changed = base;
  changed.ops = with_weights_of(base, other, tensor, 0, base.ops.size());
  const auto truth = setting.device->create(reference, setting.options).value();
  const auto executor = setting.device->create(changed, setting.options).value();
  double sum = 0, count = 0;
  for (const Window& window : windows) {
    const auto p = scored_logits(*truth, window.tokens, window.first_scored).value();
    const auto q = scored_logits(*executor, window.tokens, window.first_scored).value();
    const auto tokens = std::span(window.tokens).subspan(static_cast<size_t>(window.first_scored));
    for (const TokenScore& token : score_rows(p, q, tokens, 1)) {
      sum += token.kl;
      count += 1;
    }
  }
  return sum / count;
}

TEST_F(Rank, CostsAreThoseOfWholePasses) {
  const Setting cpu = setting("cpu");
  for (const char* arch : {"llama", "gpt2", "qwen2", "phi3", "granite", "gemma3", "qwen2moe"}) {
    SCOPED_TRACE(arch);
    const model::Model reference = forged(spec(arch));
    const model::Model suspect = quantized(reference, "Q4_0");
    const std::vector<Window> sample = windows(70);
    int64_t told = 0, expected_in_all = 0;
    const auto ranking =
        rank_tensors(reference, suspect, sample, cpu, [&](int64_t done, int64_t all) {
          EXPECT_EQ(done, ++told);
          expected_in_all = all;
        });
    ASSERT_TRUE(ranking.ok()) << ranking.error().message;
    EXPECT_EQ(told, expected_in_all);
    EXPECT_EQ(ranking->tokens, 70 - 6);
    EXPECT_EQ(ranking->context, 6);

    const op::Program a = reference.program(24).value(), b = suspect.program(24).value();
    const std::vector<Tensor> tensors = tensors_of(a, b);
    ASSERT_EQ(ranking->tensors.size(), tensors.size());
    EXPECT_EQ(tensors.size(), suspect.file().tensors().size());
    const auto cost = measure_cost(reference, suspect, sample, cpu, [](int64_t, int64_t) {});
    ASSERT_TRUE(cost.ok());
    EXPECT_DOUBLE_EQ(ranking->kl.value, cost->kl_mean.value);
    double last = 1e9;
    for (const TensorCost& found : ranking->tensors) {
      SCOPED_TRACE(found.name);
      EXPECT_LE(found.alone.value, last);
      last = found.alone.value;
      const auto tensor = std::ranges::find(tensors, found.name, &Tensor::name);
      ASSERT_NE(tensor, tensors.end());
      EXPECT_EQ(found.equal, found.format_suspect->block_values == 1);
      if (found.equal) {
        EXPECT_EQ(found.alone.value, 0);
        EXPECT_EQ(found.saved.value, 0);
        continue;
      }
      EXPECT_GT(found.alone.value, 0);
      EXPECT_LE(found.alone.low, found.alone.value);
      EXPECT_GE(found.alone.high, found.alone.value);
      // The same bits: what goes from layer to layer is what the whole pass has there.
      EXPECT_DOUBLE_EQ(found.alone.value, whole_passes(a, a, b, *tensor, sample, cpu));
      EXPECT_NEAR(found.saved.value,
                  ranking->kl.value - whole_passes(a, b, a, *tensor, sample, cpu),
                  1e-12 + 1e-9 * ranking->kl.value);
    }
  }
}

TEST_F(Rank, DevicesAgree) {
  const model::Model reference = forged(spec("llama"));
  const model::Model suspect = quantized(reference, "Q8_0");
  const std::vector<Window> sample = windows(40);
  const auto none = [](int64_t, int64_t) {};
  const auto fast = rank_tensors(reference, suspect, sample, setting("cpu"), none);
  const auto exact = rank_tensors(reference, suspect, sample, setting("reference-cpu"), none);
  // "reference" copies its input where it runs on a GPU, and takes the other way everywhere: whole
  // passes in double precision, where the first rounds what goes from layer to layer to 32 bits.
  const auto other = rank_tensors(reference, suspect, sample, setting("reference"), none);
  ASSERT_TRUE(fast.ok() && exact.ok() && other.ok());
  for (const TensorCost& found : exact->tensors) {
    const auto same = std::ranges::find(fast->tensors, found.name, &TensorCost::name);
    EXPECT_NEAR(same->alone.value, found.alone.value, 1e-6 + 0.1 * found.alone.value);
    const auto way = std::ranges::find(other->tensors, found.name, &TensorCost::name);
    EXPECT_NEAR(way->alone.value, found.alone.value, 1e-7);
    EXPECT_NEAR(way->saved.value, found.saved.value, 1e-7);
  }
}

TEST_F(Rank, AFileAgainstItselfCostsNothing) {
  const model::Model model = forged(spec("qwen2"));
  const auto none = [](int64_t, int64_t) { FAIL(); };
  const auto ranking = rank_tensors(model, model, windows(40), setting("cpu"), none);
  ASSERT_TRUE(ranking.ok());
  EXPECT_EQ(ranking->kl.value, 0);
  const auto cost =
      measure_cost(model, model, windows(40), setting("cpu"), [](int64_t, int64_t) {});
  EXPECT_EQ(cost->kl_mean.value, 0);
  EXPECT_EQ(cost->kl_p99.high, 0);
  EXPECT_EQ(cost->same.low, 1);
  EXPECT_EQ(cost->perplexity_ratio.value, 1);
  EXPECT_EQ(cost->perplexity_reference.value, cost->perplexity_suspect.value);
}

TEST_F(Rank, OtherShapesAreErrors) {
  forge::Spec sizes = spec("llama");
  const model::Model model = forged(sizes);
  const auto message = [&](const model::Model& other) {
    const auto outcome = check_same_shape(model, other);
    return outcome.ok() ? "" : outcome.error().message;
  };
  EXPECT_EQ(message(model), "");
  sizes.layers = 2;
  const model::Model fewer = forged(sizes);
  EXPECT_EQ(message(fewer),
            fmt::format("{} and {} are not of one model: 3 layers, and 2; 'lockstep audit' tells "
                        "more",
                        model.file().path(), fewer.file().path()));
  sizes.layers = 3;
  sizes.vocabulary = 130;
  EXPECT_NE(message(forged(sizes)).find("vocabularies of 131 and 130 tokens"), std::string::npos);
  sizes.vocabulary = 131;
  sizes.feed_forward = 256;
  EXPECT_NE(message(forged(sizes)).find("blk.0.ffn_gate.weight of [64, 192] and [64, 256]"),
            std::string::npos);
  EXPECT_NE(message(forged(spec("qwen2"))).find(" weights at blk.0.q, and "), std::string::npos);
}

}  // namespace
}  // namespace lockstep::quality
