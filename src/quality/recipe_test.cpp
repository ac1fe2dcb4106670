#include "quality/recipe.h"

#include <algorithm>

#include "quality/test_models.h"
#include "quant/tensor_recipe.h"

namespace lockstep::quality {
namespace {

using Recipe = ModelTest;

int64_t bytes_of(const model::Model& model) {
  int64_t bytes = 0;
  for (const gguf::Tensor& tensor : model.file().tensors())
    bytes += static_cast<int64_t>(tensor.data.size());
  return bytes;
}

TEST_F(Recipe, WhatIsProposedCanBeWrittenAndHasItsSize) {
  for (const char* arch : {"llama", "qwen2moe"}) {
    SCOPED_TRACE(arch);
    forge::Spec sizes = spec(arch);
    sizes.width = 256;
    const model::Model reference = forged(sizes);
    const model::Model suspect = quantized(reference, "Q4_K_M");
    const std::vector<Window> sample = windows(60);
    const Setting cpu = setting("cpu");
    const auto ranking = rank_tensors(reference, suspect, sample, cpu, ignore);
    ASSERT_TRUE(ranking.ok()) << ranking.error().message;
    double last = 1e300;
    for (const int64_t bytes : {bytes_of(suspect), bytes_of(suspect) * 3 / 2}) {
      const auto proposal = propose(reference, suspect, *ranking, sample, cpu, bytes);
      ASSERT_TRUE(proposal.ok()) << proposal.error().message;
      EXPECT_LE(proposal->bytes, bytes);
      EXPECT_GT(proposal->bytes, bytes * 9 / 10);
      EXPECT_EQ(proposal->probed, 0);
      EXPECT_LT(proposal->kl, last);
      last = proposal->kl;
      const auto recipe =
          quant::TensorRecipe::parse(recipe_text(*proposal, reference.file().path()), "mix");
      ASSERT_TRUE(recipe.ok()) << recipe.error().message;
      const model::Model mix = quantized(reference, {.tensors = &*recipe});
      EXPECT_EQ(bytes_of(mix), proposal->bytes);
      for (const Proposal::Line& line : proposal->lines)
        EXPECT_EQ(mix.file().tensor(line.name)->format, line.format) << line.name;
    }
  }
}

// A suspect that has some tensors in full: their costs are found with a 4-bit form.
TEST_F(Recipe, TensorsThatTheSuspectDoesNotQuantizeAreProbed) {
  const model::Model reference = forged(spec("llama"));
  const auto some = quant::TensorRecipe::parse("* F32\nblk.*.ffn_*.weight Q4_0\n", "some");
  const model::Model suspect = quantized(reference, {.tensors = &*some});
  const model::Model whole = quantized(reference, "Q5_0");
  const std::vector<Window> sample = windows(60);
  const Setting cpu = setting("cpu");
  const auto ranking = rank_tensors(reference, suspect, sample, cpu, ignore);
  ASSERT_TRUE(ranking.ok());
  const auto proposal = propose(reference, suspect, *ranking, sample, cpu, bytes_of(whole));
  ASSERT_TRUE(proposal.ok()) << proposal.error().message;
  EXPECT_EQ(proposal->probed, static_cast<int64_t>(proposal->lines.size()) - 3 * 3);
  // Rows of 64 numbers fit no superblock.
  for (const Proposal::Line& line : proposal->lines) {
    EXPECT_LE(line.format->block_values, 32) << line.name;
    EXPECT_TRUE(line.kl > 0 || line.format->block_values == 1) << line.name;
  }
  // A cost that is estimated for the very format that was measured is what was measured.
  const auto exact = rank_tensors(reference, quantized(reference, "Q4_0"), sample, cpu, ignore);
  const auto up = std::ranges::find(exact->tensors, "blk.1.ffn_up.weight", &TensorCost::name);
  const auto same = std::ranges::find(ranking->tensors, "blk.1.ffn_up.weight", &TensorCost::name);
  EXPECT_EQ(up->alone.value, same->alone.value);
}

TEST_F(Recipe, AReferenceThatIsQuantizedIsAnError) {
  const model::Model full = forged(spec("llama"));
  const model::Model reference = quantized(full, "Q8_0");
  const std::vector<Window> sample = windows(30);
  const auto ranking = rank_tensors(reference, full, sample, setting("cpu"), ignore);
  ASSERT_TRUE(ranking.ok());
  EXPECT_EQ(propose(reference, full, *ranking, sample, setting("cpu"), 1 << 20).error().message,
            reference.file().path() +
                ": tensor token_embd.weight is Q8_0 already; a recipe is made from an F32, F16 or "
                "BF16 file");
}

}  // namespace
}  // namespace lockstep::quality
