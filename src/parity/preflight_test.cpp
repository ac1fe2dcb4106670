// What compare() does with traces that do not fit together, and what it says of hand-made
// differences.
#include <cmath>
#include <limits>

#include "parity/compare.h"
#include "parity/test_judging.h"

namespace lockstep::parity {
namespace {

class Preflight : public JudgingTest {};

TEST_F(Preflight, ACopyIsExact) {
  for (const bool with_model : {true, false}) {
    const Comparison c = judge(original, original, with_model);
    EXPECT_TRUE(c.parity);
    EXPECT_EQ(c.verdict, "exact");
    EXPECT_FALSE(c.first_defect);
    EXPECT_EQ(c.coverage, 1);
    EXPECT_EQ(c.judged, with_model ? 1 : 0);
    EXPECT_TRUE(c.tokens.agree);
    EXPECT_EQ(c.choices.compared, static_cast<int64_t>(kTokens.size()));
    EXPECT_EQ(c.choices.same, c.choices.compared);
    for (const CheckpointResult& result : c.checkpoints) {
      EXPECT_EQ(result.verdict, Verdict::kExact) << result.name;
      EXPECT_EQ(result.positions, static_cast<int64_t>(kTokens.size())) << result.name;
    }
  }
}

TEST_F(Preflight, SumsDoNotDependOnTheThreads) {
  Recording other = original;
  for (auto& [name, value] : other.values)
    for (size_t i = 0; i < value.numbers.size(); ++i)
      value.numbers[i] *= 1 + 1e-6 * std::sin(static_cast<double>(i));
  const auto a = traced.write(original);
  const auto b = traced.write(other);
  std::vector<double> sums;
  for (const int threads : {1, 2, 7}) {
    options.threads = threads;
    const auto c = compare(a, b, nullptr, options);
    ASSERT_TRUE(c.ok());
    sums.push_back(0);
    for (const CheckpointResult& result : c->checkpoints)
      sums.back() += result.metrics.sum_difference + result.metrics.products;
    sums.back() += c->choices.mean_kl();
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

TEST_F(Preflight, ACorruptedOutputIsTheFirstDefectOnItsSide) {
  Recording wrong = original;
  wrong.at("blk.1.ffn_act", 3, 17) += 0.5;
  for (const bool swapped : {false, true}) {
    const Comparison c = swapped ? judge(wrong, original) : judge(original, wrong);
    EXPECT_FALSE(c.parity);
    EXPECT_EQ(c.verdict, "defect");
    ASSERT_TRUE(c.first_defect);
    EXPECT_EQ(c.first_defect->checkpoint, "blk.1.ffn_act");
    EXPECT_EQ(c.first_defect->layer, 1);
    EXPECT_EQ(c.first_defect->position, 3);
    EXPECT_EQ(c.first_defect->side, swapped ? Side::kReference : Side::kSuspect);
    EXPECT_EQ(c.first_defect->own.worst_index, 17);
    EXPECT_GT(c.first_defect->own.ratio(), 100);
  }
}

TEST_F(Preflight, WithoutAModelTheFirstDifferenceIsNamedAndNobodyIsBlamed) {
  Recording wrong = original;
  wrong.at("blk.1.ffn_act", 3, 17) += 0.5;
  const Comparison c = judge(original, wrong, false);
  EXPECT_FALSE(c.parity);
  EXPECT_EQ(c.verdict, "differs");
  ASSERT_TRUE(c.first_defect);
  EXPECT_EQ(c.first_defect->checkpoint, "blk.1.ffn_act");
  EXPECT_EQ(c.first_defect->position, 3);
  EXPECT_EQ(c.first_defect->side, Side::kUndetermined);
  EXPECT_GT(c.first_defect->own.ratio(), 1);
  EXPECT_EQ(c.unproved, "no model file was given (-m)");
}

TEST_F(Preflight, ANanIsGarbageWithAndWithoutAModel) {
  Recording wrong = original;
  wrong.at("blk.0.attn_out", 2, 7) = std::numeric_limits<double>::quiet_NaN();
  wrong.at("blk.0.attn_norm", 1, 3) *= 1 + 1e-15;  // differs, which is no news
  for (const bool with_model : {true, false}) {
    const Comparison c = judge(original, wrong, with_model);
    EXPECT_FALSE(c.parity);
    EXPECT_EQ(c.verdict, "garbage");
    ASSERT_TRUE(c.first_defect);
    EXPECT_EQ(c.first_defect->checkpoint, "blk.0.attn_out");
    EXPECT_EQ(c.first_defect->position, 2);
    EXPECT_EQ(c.first_defect->side, Side::kSuspect);
    EXPECT_TRUE(c.first_defect->own.non_finite);
    EXPECT_EQ(find(c, "blk.0.attn_out").metrics.suspect.nan, 1);
    EXPECT_EQ(find(c, "blk.0.attn_out").metrics.non_finite_differs, 1);
  }
}

TEST_F(Preflight, WhatOneSideLacksIsMissingAndLowersCoverage) {
  Recording less = original;
  less.remove("blk.0.ffn_up");
  const Comparison c = judge(original, less);
  EXPECT_TRUE(c.parity);
  const CheckpointResult& result = find(c, "blk.0.ffn_up");
  EXPECT_EQ(result.verdict, Verdict::kMissing);
  EXPECT_TRUE(result.in_reference);
  EXPECT_FALSE(result.in_suspect);
  const auto all = static_cast<double>(c.checkpoints.size());
  EXPECT_DOUBLE_EQ(c.coverage, (all - 1) / all);
}

// The engine computes in double precision; its trace keeps fewer digits. Neither the rounded
// outputs nor the rounded inputs are its errors.
TEST_F(Preflight, ATraceWithFewerDigitsIsRounding) {
  const auto a = traced.write(original, DType::kF32);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(name(dtype));
    const auto b = traced.write(original, dtype);
    for (const bool with_model : {true, false}) {
      const auto c = compare(a, b, with_model ? &traced.model() : nullptr, options);
      ASSERT_TRUE(c.ok());
      EXPECT_TRUE(c->parity) << c->verdict;
      EXPECT_FALSE(c->first_defect);
      EXPECT_EQ(any_note(*c, "values are f32 in the reference and"), dtype != DType::kF32);
    }
    Recording wrong = original;
    for (int64_t i = 0; i < 64; ++i) wrong.at("blk.1.attn_out", 4, i) *= 1.5;
    const auto c = compare(a, traced.write(wrong, dtype), &traced.model(), options);
    ASSERT_TRUE(c.ok());
    ASSERT_TRUE(c->first_defect);
    EXPECT_EQ(c->first_defect->checkpoint, "blk.1.attn_out");
    EXPECT_EQ(c->first_defect->position, 4);
    EXPECT_EQ(c->first_defect->side, Side::kSuspect);
  }
}

TEST_F(Preflight, AForkIsATieWhereRoundingExplainsIt) {
  // The two largest logits of position 6 are made nearly equal on both sides, in either order.
  Recording a = original;
  int32_t first = 0;
  for (int32_t i = 1; i < 256; ++i)
    if (a.at("logits", 6, i) > a.at("logits", 6, first)) first = i;
  Recording b = a;
  a.manifest.tokens[7] = first;
  b.manifest.tokens[7] = first == 11 ? 12 : 11;
  const int32_t second = b.manifest.tokens[7];
  // No replay here: the model's own logits have no tie.
  a.at("logits", 6, second) = a.at("logits", 6, first) * (1 - 1e-16);
  b.at("logits", 6, second) = b.at("logits", 6, first) * (1 + 4e-16);
  Comparison c = judge(a, b, false);
  ASSERT_TRUE(c.fork);
  EXPECT_EQ(c.fork->position, 6);
  EXPECT_EQ(c.fork->reference_token, first);
  EXPECT_EQ(c.fork->suspect_token, second);
  EXPECT_TRUE(c.fork->tie);
  EXPECT_TRUE(c.parity) << c.verdict;
  EXPECT_EQ(find(c, "logits").positions, 7) << "only what came from equal tokens";

  // The same fork from a difference that rounding does not explain is none.
  b.at("logits", 6, second) = b.at("logits", 6, first) * 1.5 + 1;
  c = judge(a, b, false);
  ASSERT_TRUE(c.fork);
  EXPECT_FALSE(c.fork->tie);
  EXPECT_FALSE(c.parity);

  // Equal logits and different tokens: somebody does not choose as he should.
  b = a;
  b.at("logits", 6, second) = b.at("logits", 6, first) - 3;
  a = b;
  b.manifest.tokens[7] = second;
  c = judge(a, b, false);
  ASSERT_TRUE(c.fork);
  EXPECT_FALSE(c.fork->tie);
  EXPECT_FALSE(c.parity);
  EXPECT_EQ(c.verdict, "fork");
}

TEST_F(Preflight, ChosenCheckpointsAloneAreCompared) {
  options.checkpoints = "layers";
  EXPECT_EQ(judge(original, original).checkpoints.size(), 5u);
  options.checkpoints = "blk.*.q,logits";
  EXPECT_EQ(judge(original, original).checkpoints.size(), 3u);
  options.checkpoints = "nothing.*";
  const auto c = compare(traced.write(original), traced.write(original), nullptr, options);
  ASSERT_FALSE(c.ok());
  EXPECT_NE(c.error().message.find("nothing.*"), std::string::npos);
}

// What lies between the chosen ones is replayed, not read: read, the wrong value would explain all
// that follows from it, and nobody would have judged it.
TEST_F(Preflight, ABugBetweenTheChosenCheckpointsIsFoundAtTheNextOne) {
  const std::vector<int32_t> other(original.manifest.tokens.rbegin(),
                                   original.manifest.tokens.rend());
  Recording wrong = traced.record(other, 1);  // all is in order but for the embedding
  wrong.manifest = original.manifest;
  for (const std::string chosen : {"all", "blk.0.output,logits"}) {
    SCOPED_TRACE(chosen);
    options.checkpoints = chosen;
    const Comparison c = judge(original, wrong);
    EXPECT_FALSE(c.parity);
    ASSERT_TRUE(c.first_defect);
    EXPECT_EQ(c.first_defect->checkpoint, chosen == "all" ? "embedding" : "blk.0.output");
    EXPECT_EQ(c.first_defect->side, Side::kSuspect);
  }
}

TEST_F(Preflight, AnotherMaskWithoutAModelIsNobodysFault) {
  Recording wrong = original;
  auto& scores = wrong.values.at("blk.0.attn_scores");  // [heads, tokens, positions]
  const int64_t last = scores.shape[1] - 1;             // sees all; its first column is hidden
  scores.numbers.at(static_cast<size_t>(last * scores.shape[2])) =
      -std::numeric_limits<double>::infinity();
  for (const bool with_model : {true, false}) {
    const Comparison c = judge(original, wrong, with_model);
    EXPECT_EQ(c.verdict, with_model ? "defect" : "differs");
    ASSERT_TRUE(c.first_defect);
    EXPECT_EQ(c.first_defect->checkpoint, "blk.0.attn_scores");
    EXPECT_EQ(c.first_defect->position, last);
    EXPECT_EQ(c.first_defect->side, with_model ? Side::kSuspect : Side::kUndetermined);
  }
}

TEST_F(Preflight, AnotherModelIsRefused) {
  Recording other = original;
  other.manifest.model.fingerprint = std::string(32, '0');
  // One side of two may have run another file; then the other is judged alone.
  auto c = compare(traced.write(other), traced.write(other), &traced.model(), options);
  ASSERT_FALSE(c.ok());
  EXPECT_NE(c.error().message.find("is not the model of the trace"), std::string::npos);
  other.manifest.model.architecture = "gpt2";
  c = compare(traced.write(original), traced.write(other), nullptr, options);
  ASSERT_FALSE(c.ok());
  EXPECT_NE(c.error().message.find("different architectures"), std::string::npos);
}

TEST_F(Preflight, ATokenBeyondTheVocabularyIsAnError) {
  for (const auto& [index, token] : {std::pair(0, INT32_MAX), std::pair(8, 1'000'000)}) {
    Recording odd = original;
    odd.manifest.tokens.at(static_cast<size_t>(index)) = token;
    const auto out = compare(traced.write(odd), traced.write(odd), &traced.model(), options);
    ASSERT_FALSE(out.ok());
    EXPECT_TRUE(out.error().message.starts_with(
        fmt::format("token {} of the traces is {}, but ", index, token)))
        << out.error().message;
    EXPECT_TRUE(judge(odd, odd, false).parity) << "without a model nothing is looked up";
  }
}

// gpt2 has a row for each position of its context, and none beyond.
TEST(PreflightContext, PositionsBeyondTheContextAreNotReplayed) {
  forge::Spec spec;
  spec.arch = "gpt2";
  const TracedModel traced(spec);
  const int64_t context = traced.model().config().context_length;
  Recording late = traced.record(kTokens, kPrompt);
  late.first_position = context - 2;
  late.manifest.tokens.resize(static_cast<size_t>(late.first_position) + kTokens.size(), 1);
  for (const char* name : {"attn_scores", "attn_probs"})
    for (int64_t layer = 0; layer < traced.model().config().layers; ++layer)
      late.remove(fmt::format("blk.{}.{}", layer, name));
  CompareOptions options;
  options.checkpoints = "embedding";
  const auto trace = traced.write(late);
  const auto c = compare(trace, trace, &traced.model(), options);
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->positions_compared, static_cast<int64_t>(kTokens.size()));
  EXPECT_EQ(c->positions_judged, 2);
  EXPECT_EQ(find(*c, "embedding").suspect.judged, 2);
  EXPECT_TRUE(any_note(*c, fmt::format("positions from {} on are beyond", context)));
}

}  // namespace
}  // namespace lockstep::parity
