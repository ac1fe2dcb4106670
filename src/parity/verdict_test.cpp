// What a verdict rests on: evidence that reaches the end, the right model and settings, and where
// an error is said to lie.
#include <cmath>
#include <limits>

#include "parity/test_judging.h"
#include "parity/test_support.h"

namespace lockstep::parity {
namespace {

class Verdicts : public JudgingTest {};

TEST_F(Verdicts, WhatDoesNotReachTheLogitsIsInconclusive) {
  const Recording embedding = only(original, [](const std::string& n) { return n == "embedding"; });
  const Recording silent = only(original, [](const std::string& n) { return n != "logits"; });
  for (const bool with_model : {true, false}) {
    Comparison c = judge(original, embedding, with_model);
    EXPECT_FALSE(c.parity);
    EXPECT_EQ(c.verdict, "inconclusive");
    EXPECT_EQ(c.evidence.missing, "the suspect recorded no logits");
    EXPECT_EQ(judge(embedding, original, with_model).evidence.missing,
              "the reference recorded no logits");
    EXPECT_EQ(judge(embedding, embedding, with_model).evidence.missing,
              "neither side recorded logits");
    EXPECT_EQ(judge(original, silent, with_model).verdict, "inconclusive");
  }
  // Checkpoints that the user chose are all that is asked.
  options.checkpoints = "embedding";
  const Comparison c = judge(original, original);
  EXPECT_TRUE(c.parity);
  EXPECT_FALSE(c.evidence.asked);
}

TEST_F(Verdicts, WhereNothingWasSampledNineTenthsOfThePositionsNeedLogits) {
  const std::vector<int32_t> tokens(20, 7);
  for (const auto& [missing, parity] : {std::pair(2, true), std::pair(3, false)}) {
    Recording whole = traced.record(tokens, 20);
    Recording last = whole;
    Recording::Value& logits = last.values.at("logits");
    logits.numbers.erase(logits.numbers.begin(),
                         logits.numbers.begin() + missing * logits.shape[1]);
    logits.shape[0] -= missing;
    const Comparison c = judge(whole, last);
    EXPECT_EQ(c.parity, parity) << missing;
    EXPECT_FALSE(c.evidence.sampled);
    EXPECT_EQ(c.evidence.found, 20 - missing);
  }
}

TEST_F(Verdicts, MoreCoverageCanBeAskedFor) {
  const Recording fewer = only(original, [](const std::string& n) { return n != "blk.0.q"; });
  EXPECT_TRUE(judge(original, fewer).parity);
  options.min_coverage = 0.999;
  const Comparison c = judge(original, fewer);
  EXPECT_FALSE(c.parity);
  EXPECT_EQ(c.verdict, "inconclusive");
  EXPECT_TRUE(judge(original, original).parity);
}

TEST_F(Verdicts, ATraceOfAnotherModelIsRefused) {
  Recording other = original;
  other.manifest.model.fingerprint.clear();
  EXPECT_TRUE(judge(original, other).parity) << "nothing speaks against it";
  const auto refused = [&](const Recording& altered, const char* why) {
    const std::string told = refusal(altered, altered);
    const std::string one = refusal(altered, other);
    EXPECT_TRUE(one.find(why) != one.npos || one.find("different architectures") != one.npos)
        << one;
    EXPECT_NE(told.find("is not the model of the trace"), std::string::npos) << told;
    EXPECT_NE(told.find(why), std::string::npos) << told;
  };
  Recording architecture = other;
  architecture.manifest.model.architecture = "qwen2";
  refused(architecture, "its architecture is qwen2, the file's llama");
  Recording format = other;
  format.manifest.model.quantization = "Q4_K_M";
  refused(format, "its format is Q4_K_M");
  format.manifest.model.quantization = "whatever";
  EXPECT_TRUE(judge(format, format).parity);
  Recording wide = other;
  for (const char* name : {"embedding", "final_norm"}) {
    Recording::Value& value = wide.values.at(name);
    value.shape = {9, 128};
    value.numbers.resize(9 * 128);
  }
  refused(wide, "embedding has 128 numbers, the file's model 64");
  Recording deep = other;
  deep.order.push_back("blk.2.output");
  deep.values["blk.2.output"] = deep.values.at("blk.1.output");
  refused(deep, "it has blk.2.output, the file's model 2 layers");
}

// A file may have been renamed. Whether it is the same one, the numbers tell.
TEST_F(Verdicts, AnotherNameAloneCountsWhereTheNumbersDoNotFit) {
  Recording renamed = original;
  renamed.manifest.model.fingerprint.clear();
  renamed.manifest.model.file = "copy.gguf";
  EXPECT_TRUE(judge(renamed, renamed).parity);
  Recording wrong = renamed;
  wrong.at("blk.1.ffn_act", 3, 17) += 0.5;
  EXPECT_EQ(judge(renamed, wrong).first_defect->checkpoint, "blk.1.ffn_act");
  forge::Spec spec;
  spec.seed = 99;
  Recording other = TracedModel(spec).record(kTokens, kPrompt);
  other.manifest.model = renamed.manifest.model;
  const std::string told = refusal(original, other);
  EXPECT_NE(told.find("it ran copy.gguf, and its numbers do not fit this file from embedding on"),
            std::string::npos)
      << told;
  // From a file of the same name they may be the engine's fault, or that of a file elsewhere.
  other.manifest.model.file = "model.gguf";
  const Comparison c = judge(original, other);
  EXPECT_EQ(c.first_defect->checkpoint, "embedding");
  EXPECT_TRUE(any_note(c, "does not say which file it ran"));
  const TracedModel elsewhere(spec);
  other.manifest.model.path = elsewhere.model_path();
  EXPECT_NE(refusal(other, other).find("it ran " + elsewhere.model_path()), std::string::npos);
  EXPECT_EQ(judge(original, other).other_models, "model.gguf and model.gguf");
  other.manifest.model.path = "/gone/model.gguf";
  EXPECT_EQ(judge(original, other).first_defect->checkpoint, "embedding");
}

TEST_F(Verdicts, TwoFilesAreTwoFiles) {
  Recording other = original;
  other.manifest.model.fingerprint = std::string(32, '0');
  other.manifest.model.file = "other.gguf";
  other.at("blk.0.q", 2, 3) += 1;
  const Comparison c = judge(original, other);
  EXPECT_FALSE(c.parity);
  EXPECT_EQ(c.verdict, "differs");
  EXPECT_EQ(c.other_models, "model.gguf and other.gguf");
  EXPECT_EQ(c.first_defect->side, Side::kUndetermined);
  EXPECT_TRUE(c.reference.judged);
  EXPECT_FALSE(c.suspect.judged);
}

TEST_F(Verdicts, NamesThatAreNoneAreListedWithTheNearest) {
  Recording odd = original;
  const auto rename = [&](const std::string& from, const std::string& to) {
    odd.values[to] = odd.values.at(from);
    odd.remove(from);
    odd.order.push_back(to);
  };
  rename("embedding", "embeding");
  rename("blk.1.ffn_norm", "layer.1.ffn_nrom");
  rename("blk.0.v", "xyz");
  const Comparison c = judge(original, odd);
  ASSERT_EQ(c.unknown_in_suspect.recorded.size(), 3u);
  std::map<std::string, std::string> nearest;
  for (const auto& [name, near] : c.unknown_in_suspect.recorded) nearest[name] = near;
  EXPECT_EQ(nearest.at("embeding"), "embedding");
  EXPECT_EQ(nearest.at("layer.1.ffn_nrom"), "blk.1.ffn_norm");
  EXPECT_EQ(nearest.at("xyz"), "");
  EXPECT_TRUE(any_note(c, "embeding (did you mean embedding?)"));
  for (const CheckpointResult& result : c.checkpoints) EXPECT_TRUE(result.known) << result.name;
  // Three of all checkpoints are missing; the odd ones do not count.
  const auto all = static_cast<double>(original.order.size());
  EXPECT_DOUBLE_EQ(c.coverage, (all - 3) / all);
  // On both sides they are compared, and never the verdict.
  Recording differing = odd;
  differing.values.at("xyz").numbers[0] += 5;
  const Comparison both = judge(odd, differing);
  EXPECT_TRUE(both.parity) << both.verdict;
  EXPECT_EQ(find(both, "xyz").verdict, Verdict::kDiffers);
  EXPECT_FALSE(find(both, "xyz").known);
  EXPECT_EQ(both.coverage, 1);
}

TEST_F(Verdicts, ASparseTraceSaysBetweenWhichCheckpointsTheMistakeLies) {
  const auto layers = [](const std::string& n) {
    return n == "embedding" || n.ends_with(".output") || n == "final_norm" || n == "logits";
  };
  Recording wrong = only(original, layers);
  for (int64_t i = 0; i < 64; ++i) wrong.at("blk.1.output", 3, i) += 1;
  Comparison c = judge(original, wrong);
  ASSERT_TRUE(c.first_defect);
  EXPECT_EQ(c.first_defect->checkpoint, "blk.1.output");
  EXPECT_EQ(c.first_defect->after, "blk.0.output");
  // With all ops recorded it is this one.
  Recording dense = original;
  for (int64_t i = 0; i < 64; ++i) dense.at("blk.1.output", 3, i) += 1;
  EXPECT_FALSE(judge(original, dense).first_defect->after);
  const Recording logits = only(original, [](const std::string& n) { return n == "logits"; });
  Recording bad = logits;
  for (int64_t i = 0; i < 256; ++i) bad.at("logits", 0, i) *= 2;
  c = judge(original, bad);
  EXPECT_EQ(c.first_defect->after, "");
}

TEST_F(Verdicts, TheShapeOfAnErrorIsCounted) {
  Recording wrong = original;
  for (int64_t position = 0; position < 9; ++position)
    wrong.at("blk.0.ffn_act", position, 17) += 0.5;
  Comparison c = judge(original, wrong);
  ASSERT_TRUE(c.first_defect && c.first_defect->shape);
  const ErrorShape* shape = &*c.first_defect->shape;
  EXPECT_EQ(shape->wrong_elements, 1);
  EXPECT_EQ(shape->columns, std::vector<int64_t>{17});
  EXPECT_TRUE(shape->same_everywhere);
  EXPECT_EQ(shape->rows, 9);
  EXPECT_EQ(shape->positions.size(), 9u);
  EXPECT_EQ(shape->heads, 0);

  // The second head of q after the rotation, at two positions, with other columns.
  wrong = original;
  for (int64_t i = 16; i < 32; ++i) wrong.at("blk.1.q_rope", 3, i) += 0.5;
  wrong.at("blk.1.q_rope", 6, 20) += 0.5;
  c = judge(original, wrong);
  ASSERT_TRUE(c.first_defect && c.first_defect->shape);
  shape = &*c.first_defect->shape;
  EXPECT_EQ(shape->heads, 4);
  EXPECT_EQ(shape->wrong_heads, std::vector<int64_t>{1});
  EXPECT_EQ(shape->wrong_elements, 16);
  EXPECT_FALSE(shape->same_everywhere);
  EXPECT_EQ(shape->positions, (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(shape->elements, 64);

  // One key of one head of the scores.
  wrong = original;
  Recording::Value& scores = wrong.values.at("blk.0.attn_scores");  // [heads, tokens, positions]
  scores.numbers.at(static_cast<size_t>((2 * scores.shape[1] + 5) * scores.shape[2] + 1)) += 1;
  c = judge(original, wrong);
  ASSERT_TRUE(c.first_defect && c.first_defect->shape);
  shape = &*c.first_defect->shape;
  EXPECT_EQ(shape->wrong_heads, std::vector<int64_t>{2});
  EXPECT_EQ(shape->columns, std::vector<int64_t>{1});
  EXPECT_EQ(shape->positions, std::vector<int64_t>{5});
}

TEST_F(Verdicts, DivergencesAreNeverNan) {
  for (const double odd :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    Recording wrong = original;
    for (const int64_t position : {2, 3}) wrong.at("logits", position, 5) = odd;
    for (const auto& [a, b] :
         {std::pair(original, wrong), std::pair(wrong, original), std::pair(wrong, wrong)}) {
      const Comparison c = judge(a, b, false);
      EXPECT_FALSE(std::isnan(c.choices.mean_kl())) << odd;
      EXPECT_FALSE(std::isnan(c.choices.worst_kl)) << odd;
    }
  }
}

// A side that does not say its arithmetic is not called wrong for one that honest engines have.
TEST_F(Verdicts, AnArithmeticThatIsNotSaidIsFoundOut) {
  const auto plain = [](const std::string& n) {
    return !n.ends_with("scores") && !n.ends_with("probs");
  };
  options.checkpoints = "ops";
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Recording coarse = only(original, plain);
    for (auto& [name, value] : coarse.values)
      for (double& number : value.numbers) number = round_to(number, dtype);
    coarse.manifest.engine.precision = {};
    Comparison c = judge(original, coarse);
    EXPECT_FALSE(c.parity);
    EXPECT_EQ(c.verdict, "inconclusive") << name(dtype);
    EXPECT_FALSE(c.first_defect);
    EXPECT_NE(c.suspect.precision.find(fmt::format("activations {}", name(dtype))),
              std::string::npos)
        << c.suspect.precision;
    EXPECT_TRUE(c.reference.precision.empty());
    // Declared, it is in parity; declared as something finer, it is wrong.
    coarse.manifest.engine.precision.compute = "f32";
    coarse.manifest.engine.precision.activations = std::string(name(dtype));
    EXPECT_TRUE(judge(original, coarse).parity);
    coarse.manifest.engine.precision.activations = "f32";
    EXPECT_EQ(judge(original, coarse).verdict, "defect");
    // A mistake is found where it is all the same.
    coarse.manifest.engine.precision = {};
    for (int64_t i = 0; i < 64; ++i) coarse.at("blk.1.attn_out", 4, i) *= 1.5;
    c = judge(original, coarse);
    EXPECT_EQ(c.verdict, "defect");
    ASSERT_TRUE(c.first_defect);
    EXPECT_EQ(c.first_defect->checkpoint, "blk.1.attn_out") << name(dtype);
    EXPECT_EQ(c.first_defect->position, 4);
  }
  // And of one that computes in f32 as is assumed.
  Recording wrong = original;
  wrong.manifest.engine.precision = {};
  for (int64_t i = 0; i < 64; ++i) wrong.at("blk.1.attn_out", 4, i) *= 1.01;
  const Comparison c = judge(original, wrong);
  ASSERT_TRUE(c.first_defect);
  EXPECT_EQ(c.first_defect->checkpoint, "blk.1.attn_out");
  EXPECT_TRUE(c.suspect.precision.empty()) << c.suspect.precision;
}

}  // namespace
}  // namespace lockstep::parity
