// What two traces have in common is compared, and no more: prompts, positions and widths that
// differ.
#include <algorithm>

#include "parity/compare.h"
#include "parity/test_judging.h"

namespace lockstep::parity {
namespace {

class CommonRows : public JudgingTest {};

TEST_F(CommonRows, DifferentPromptsAreComparedOnTheirCommonBeginning) {
  std::vector<int32_t> tokens = kTokens;
  tokens[2] = 60;
  const Recording other = traced.record(tokens, kPrompt);
  Comparison c = judge(original, other);
  EXPECT_FALSE(c.parity);
  EXPECT_EQ(c.verdict, "different prompts");
  EXPECT_EQ(c.tokens.first_difference, 2);
  EXPECT_FALSE(c.tokens.offset);
  ASSERT_TRUE(c.prompts);
  EXPECT_EQ(c.prompts->kind, "text");
  EXPECT_FALSE(c.first_defect);
  EXPECT_FALSE(c.fork) << "nobody chose a prompt";
  for (const CheckpointResult& result : c.checkpoints) {
    EXPECT_EQ(result.positions, 2) << result.name;
    EXPECT_EQ(result.verdict, Verdict::kExact) << result.name;
    // Each side is judged on its own tokens.
    EXPECT_EQ(result.reference.judged, 9) << result.name;
    EXPECT_EQ(result.suspect.judged, 9) << result.name;
    EXPECT_EQ(result.suspect.judged_shared, 2) << result.name;
  }
  EXPECT_EQ(c.suspect.beyond_shared, 7);

  Recording wrong = other;
  wrong.at("blk.1.ffn_act", 6, 17) += 0.5;
  c = judge(original, wrong);
  EXPECT_EQ(c.verdict, "different prompts");
  ASSERT_TRUE(c.first_defect);
  EXPECT_EQ(c.first_defect->checkpoint, "blk.1.ffn_act");
  EXPECT_EQ(c.first_defect->position, 6);
  EXPECT_EQ(c.first_defect->side, Side::kSuspect);
}

TEST_F(CommonRows, AnEngineMayBeGivenWhatTheOtherGenerated) {
  Recording forced = original;
  forced.manifest.prompt_tokens = static_cast<int64_t>(kTokens.size());
  for (const Comparison& c : {judge(original, forced), judge(forced, original)}) {
    EXPECT_TRUE(c.parity) << c.verdict;
    EXPECT_TRUE(c.tokens.agree);
    EXPECT_EQ(c.coverage, 1);
  }
  // But not where the other never went through all of it.
  forced.manifest.tokens.push_back(forced.manifest.tokens.back());
  forced.manifest.prompt_tokens += 1;
  EXPECT_EQ(judge(original, forced).verdict, "different prompts");
}

TEST_F(CommonRows, PositionsThatStartAtTheGenerationAreRefusedWithTheReason) {
  Recording other = original;
  other.manifest.tokens.erase(other.manifest.tokens.begin(),
                              other.manifest.tokens.begin() + kPrompt);
  other.manifest.prompt_tokens = 0;
  const Comparison c = judge(original, other, false);
  EXPECT_EQ(c.verdict, "different prompts");
  EXPECT_EQ(c.tokens.offset, kPrompt);
  ASSERT_TRUE(c.prompts);
  EXPECT_EQ(c.prompts->kind, "shift");
  EXPECT_TRUE(
      c.prompts->text.starts_with("the suspect's tokens are the reference's from token 5 on"));
  EXPECT_EQ(judge(other, original).tokens.offset, -kPrompt);
}

TEST_F(CommonRows, ATraceOfTheGenerationAloneIsComparedWhereBothHaveRows) {
  // Absolute positions, but rows from position 6 on only.
  constexpr int64_t kFrom = 6;
  Recording late = original;
  late.first_position = kFrom;
  for (auto& [name, value] : late.values) {
    if (value.shape.size() == 3) continue;
    value.numbers.erase(value.numbers.begin(), value.numbers.begin() + kFrom * value.shape[1]);
    value.shape[0] -= kFrom;
  }
  for (const std::string& name : std::vector(late.order))
    if (late.values[name].shape.size() == 3) late.remove(name);
  const Comparison c = judge(original, late);
  EXPECT_EQ(c.verdict, "inconclusive");
  EXPECT_EQ(c.evidence.needed, 4) << "positions 4 to 7 were sampled from";
  EXPECT_EQ(c.evidence.found, 2);
  EXPECT_EQ(c.evidence.missing,
            "the suspect has no logits at 2 of the 4 positions that were sampled from, first at 4");
  EXPECT_EQ(find(c, "logits").positions, static_cast<int64_t>(kTokens.size()) - kFrom);
  EXPECT_LT(c.coverage, 0.5);
  EXPECT_TRUE(any_note(c, "the reference has positions 0 to 8, the suspect 6 to 8"));
}

TEST_F(CommonRows, ATraceThatEndsEarlyLowersCoverage) {
  Recording half = original;
  half.manifest.tokens.resize(6);
  for (auto& [name, value] : half.values) {
    if (value.shape.size() == 3) continue;
    value.shape[0] = 6;
    value.numbers.resize(static_cast<size_t>(6 * value.shape[1]));
  }
  for (const std::string& name : std::vector(half.order))
    if (half.values[name].shape.size() == 3) half.remove(name);
  options.checkpoints = "ops";
  const Comparison c = judge(original, half);
  EXPECT_FALSE(c.parity);
  EXPECT_EQ(c.verdict, "inconclusive");
  EXPECT_DOUBLE_EQ(c.coverage, 6.0 / 9);
  EXPECT_EQ(find(c, "logits").reference.judged, 9) << "the longer side is judged to its end";
}

TEST_F(CommonRows, ASideWithoutTokensIsTakenAtItsPositions) {
  Recording silent = original;
  silent.manifest.tokens.clear();
  silent.manifest.prompt_tokens = 0;
  const Comparison c = judge(original, silent);
  EXPECT_TRUE(c.parity);
  EXPECT_FALSE(c.tokens.known);
  EXPECT_EQ(c.coverage, 1);
  EXPECT_EQ(c.judged, 1);
  EXPECT_TRUE(any_note(c, "does not say its tokens"));
}

// The logits with `width` numbers a row.
void resize_vocabulary(Recording& recording, int64_t width) {
  Recording::Value& logits = recording.values.at("logits");
  Recording::Value other{{logits.shape[0], width}, {}};
  for (int64_t row = 0; row < logits.shape[0]; ++row)
    for (int64_t i = 0; i < width; ++i)
      other.numbers.push_back(i < logits.shape[1]
                                  ? logits.numbers[static_cast<size_t>(row * logits.shape[1] + i)]
                                  : -1);
  logits = std::move(other);
}

TEST_F(CommonRows, AVocabularyWithOtherPaddingIsComparedAsFarAsBothGo) {
  for (const int64_t width : {250, 263}) {
    Recording other = original;
    resize_vocabulary(other, width);
    for (const bool swapped : {false, true}) {
      const Comparison c = swapped ? judge(other, original) : judge(original, other);
      EXPECT_TRUE(c.parity) << width;
      EXPECT_EQ(c.verdict, "exact");
      EXPECT_EQ(c.judged, 1) << "a narrower vocabulary is judged as well";
      EXPECT_EQ(find(c, "logits").metrics.elements,
                static_cast<int64_t>(kTokens.size()) * std::min<int64_t>(width, 256));
      EXPECT_TRUE(any_note(c, "compared as far as both go"));
    }
    other.at("logits", 4, 100) += 1;
    const Comparison c = judge(original, other);
    ASSERT_TRUE(c.first_defect);
    EXPECT_EQ(c.first_defect->checkpoint, "logits");
    EXPECT_EQ(c.first_defect->position, 4);
  }
}

TEST_F(CommonRows, AnotherWidthOfAnythingElseIsNotCompared) {
  Recording other = original;
  Recording::Value& q = other.values.at("blk.0.q");
  q.shape[1] /= 2;
  q.numbers.resize(q.numbers.size() / 2);
  const Comparison c = judge(original, other);
  EXPECT_EQ(find(c, "blk.0.q").positions, 0);
  EXPECT_EQ(find(c, "blk.0.q").verdict, Verdict::kDefect) << "judged as far as it goes";
  EXPECT_LT(c.coverage, 1);
  EXPECT_TRUE(any_note(c, "blk.0.q has 64 numbers in the reference and 32 in the suspect"));
}

TEST_F(CommonRows, ChosenPositions) {
  Recording wrong = original;
  for (int64_t i = 0; i < 8; ++i) wrong.at("blk.0.ffn_act", 3, i) += 1;
  options.positions = {5, 0, 5, 100};
  const Comparison c = judge(original, wrong);
  EXPECT_TRUE(c.parity);
  EXPECT_TRUE(c.positions_chosen);
  EXPECT_EQ(c.positions_judged, 2);
  EXPECT_EQ(c.positions_compared, static_cast<int64_t>(kTokens.size()));
  EXPECT_EQ(find(c, "blk.0.ffn_act").suspect.judged, 2);
  EXPECT_TRUE(any_note(c, "1 of the chosen positions are not on both sides"));
  EXPECT_TRUE(any_note(c, "first at blk.0.ffn_act, position 3: --positions 3 judges it"));
  options.positions = {3};
  EXPECT_FALSE(judge(original, wrong).parity);
  options.positions = {100};
  const auto none = compare(traced.write(original), traced.write(wrong), &traced.model(), options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message,
            "none of the chosen positions is among the 9 that both traces have, 0 to 8");
}

}  // namespace
}  // namespace lockstep::parity
