// Which tokens a side can have chosen, going by its own logits.
#include <algorithm>

#include "parity/test_judging.h"
#include "parity/test_support.h"

namespace lockstep::parity {
namespace {

class ChoiceVerdicts : public JudgingTest {
 protected:
  // What the model itself chooses, one token after another.
  Recording greedy(const std::vector<int32_t>& prompt, int64_t count) {
    std::vector<int32_t> tokens = prompt;
    for (int64_t i = 0; i < count; ++i) {
      Recording step = traced.record(tokens, std::ssize(prompt));
      tokens.push_back(largest(step, std::ssize(tokens) - 1));
    }
    Recording out = traced.record({tokens.begin(), tokens.end() - 1}, std::ssize(prompt));
    out.manifest.tokens = tokens;
    out.manifest.sampling = {{"temperature", 0}};
    return out;
  }

  static int32_t largest(Recording& recording, int64_t position, int32_t besides = -1) {
    int32_t best = besides == 0 ? 1 : 0;
    for (int32_t i = 0; i < 256; ++i)
      if (i != besides &&
          recording.at("logits", position, i) > recording.at("logits", position, best))
        best = i;
    return best;
  }

  // The same run with another token chosen last but `before_end`, and gone on from there.
  Recording forked(const Recording& from, int64_t index, int32_t token) {
    std::vector<int32_t> tokens = from.manifest.tokens;
    tokens[static_cast<size_t>(index)] = token;
    Recording out = traced.record({tokens.begin(), tokens.end() - 1}, from.manifest.prompt_tokens);
    out.manifest.tokens = tokens;
    return out;
  }
};

TEST_F(ChoiceVerdicts, LogitsThatWereCutOffSayNothingOfChoices) {
  Recording log = original;
  for (const std::string& name : log.order) {
    Recording::Value& value = log.values.at(name);
    if (value.shape.size() == 3) continue;
    Recording::Value cut{{value.shape[0], 6}, {}};
    for (int64_t row = 0; row < value.shape[0]; ++row)
      for (int64_t i = 0; i < 6; ++i)
        cut.numbers.push_back(value.numbers[static_cast<size_t>(row * value.shape[1] + i)]);
    log.full_widths[name] = value.shape[1];
    value = std::move(cut);
  }
  log = only(log,
             [](const std::string& n) { return !n.ends_with("scores") && !n.ends_with("probs"); });
  options.checkpoints = "ops";
  for (const auto& [a, b] :
       {std::pair(original, log), std::pair(log, original), std::pair(log, log)}) {
    const Comparison c = judge(a, b, false);
    EXPECT_TRUE(c.parity) << c.verdict;
    EXPECT_EQ(c.choices.compared, 0);
    EXPECT_EQ(find(c, "logits").metrics.elements, 6 * 9);
    EXPECT_EQ(find(c, "blk.0.ffn_act").metrics.elements, 6 * 9) << "compared without a model";
    EXPECT_LT(c.coverage, 0.2);
    EXPECT_EQ(std::ranges::count_if(
                  c.notes, [](const std::string& n) { return n.find("numbers") != n.npos; }),
              1);
    EXPECT_TRUE(any_note(c, fmt::format("of {} checkpoints only the first 6 numbers of a row",
                                        c.checkpoints.size())));
  }
  // The same without a word of how long rows were.
  Recording short_logits = original;
  short_logits.values["logits"] = log.values.at("logits");
  const Comparison cut = judge(original, short_logits);
  EXPECT_TRUE(cut.parity) << cut.verdict;
  EXPECT_EQ(cut.choices.compared, 0);
  EXPECT_DOUBLE_EQ(find(cut, "logits").share, 6.0 / 256);
  EXPECT_LT(cut.coverage, 1);
  Recording differs = log;
  differs.at("blk.0.ffn_act", 2, 3) += 1;
  EXPECT_FALSE(judge(original, differs, false).parity);
}

TEST_F(ChoiceVerdicts, AChoiceIsHeldAgainstTheSidesOwnLogits) {
  const Recording right = greedy({3, 141, 59}, 6);
  Comparison c = judge(right, right);
  EXPECT_TRUE(c.parity) << c.verdict;
  EXPECT_EQ(c.suspect.choices.made, 6);
  EXPECT_EQ(c.suspect.choices.checked, 6);
  EXPECT_EQ(c.suspect.choices.not_largest, 0);

  // The second best, on both sides: every number is the same, and both are wrong.
  Recording shifted = right;
  const int32_t second = largest(shifted, 5, right.manifest.tokens[6]);
  Recording second_best = forked(right, 6, second);
  second_best.manifest.sampling = {{"temperature", 0}};
  c = judge(second_best, second_best);
  EXPECT_FALSE(c.parity);
  EXPECT_EQ(c.verdict, "defect");
  ASSERT_TRUE(c.first_defect);
  EXPECT_EQ(c.first_defect->checkpoint, "choice");
  EXPECT_EQ(c.first_defect->position, 5);
  EXPECT_EQ(c.first_defect->side, Side::kBoth);
  ASSERT_TRUE(c.first_defect->choice);
  EXPECT_EQ(c.first_defect->choice->token, second);
  EXPECT_EQ(c.first_defect->choice->largest, right.manifest.tokens[6]);

  // Of a side that does not say how it sampled nothing is proved.
  second_best.manifest.sampling = nlohmann::ordered_json::object();
  c = judge(second_best, second_best);
  EXPECT_TRUE(c.parity) << c.verdict;
  EXPECT_TRUE(any_note(c, "has not its own largest logit"));

  // A fork says whose choice it is not.
  second_best.manifest.sampling = {{"temperature", 0}};
  c = judge(right, second_best);
  EXPECT_EQ(c.first_defect->side, Side::kSuspect);
  ASSERT_TRUE(c.fork);
  EXPECT_TRUE(c.fork->reference->is_largest);
  EXPECT_FALSE(c.fork->suspect->is_largest);
}

TEST_F(ChoiceVerdicts, TwoThatSampleDifferentlyAreInParityUpToTheFirstChoice) {
  const Recording cold = greedy({3, 141, 59}, 6);
  Recording hot = forked(cold, 4, 200);
  hot.manifest.sampling = {{"temperature", 0.9}, {"top_k", 0}, {"seed", 4}};
  Comparison c = judge(cold, hot);
  EXPECT_TRUE(c.parity) << c.verdict;
  EXPECT_EQ(c.verdict, "exact");
  ASSERT_TRUE(c.fork);
  EXPECT_TRUE(c.fork->sampled);
  EXPECT_EQ(c.tokens.first_difference, 4);
  // After the fork each side is judged on its own tokens.
  EXPECT_EQ(c.suspect.beyond_shared, 4);
  hot.at("blk.1.attn_mix", 7, 5) += 3;
  c = judge(cold, hot);
  EXPECT_FALSE(c.parity);
  ASSERT_TRUE(c.first_defect);
  EXPECT_EQ(c.first_defect->checkpoint, "blk.1.attn_mix");
  EXPECT_EQ(c.first_defect->position, 7);
  EXPECT_EQ(c.first_defect->side, Side::kSuspect);
}

TEST_F(ChoiceVerdicts, AnExactTieIsSaidToBeOne) {
  Recording a = greedy({3, 141, 59}, 4);
  Recording b = a;
  const int32_t chosen = a.manifest.tokens[5];
  const int32_t other = largest(a, 4, chosen);
  for (Recording* side : {&a, &b}) side->at("logits", 4, other) = side->at("logits", 4, chosen);
  b.manifest.tokens[5] = other;
  const Comparison c = judge(a, b, false);
  ASSERT_TRUE(c.fork);
  EXPECT_TRUE(c.fork->tie);
  EXPECT_TRUE(c.fork->reference->tie);
  EXPECT_TRUE(c.fork->suspect->is_largest);
  EXPECT_TRUE(c.parity) << c.verdict;
  EXPECT_EQ(c.suspect.choices.ties, 1);
}

}  // namespace
}  // namespace lockstep::parity
