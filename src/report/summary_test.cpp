// The sentences of reports: what they must say.
#include "report/summary.h"

#include <limits>

#include <gtest/gtest.h>

#include "parity/test_traces.h"
#include "report/test_comparisons.h"

namespace lockstep::report {
namespace {

TEST(Evidence, OfAChoiceOfExpertsNamesThem) {
  Comparison c = defective();
  c.first_defect->checkpoint = "blk.1.ffn_choice";
  c.first_defect->own = {.position = 3, .error = 0.5, .expected = 1e-6};
  c.first_defect->own.recorded = 4;
  c.first_defect->own.replayed = 7;
  c.first_defect->own.worst_ratio = 1e6;
  const std::string said = evidence(c, subject());
  EXPECT_EQ(said.find("It took expert 4 and left expert 7, whose score is larger by 0.5; rounding "
                      "explains "),
            0u)
      << said;
  c.first_defect->own.replayed = -1;
  c.first_defect->own.worst_index = 2;
  EXPECT_EQ(evidence(c, subject())
                .find("Slot 2 holds 4, which is no expert or one that another slot has."),
            0u);
}

TEST(Summary, NumbersAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(-0.0), "0");
  EXPECT_EQ(short_number(0.5), "0.5");
  EXPECT_EQ(short_number(12345.6), "1.23e+04");
  EXPECT_EQ(short_number(3.14159e-7), "3.1e-07");
  EXPECT_EQ(short_number(-1e300), "-1.0e+300");
  EXPECT_EQ(short_number(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(percent(1), "100%");
  EXPECT_EQ(percent(0.99999), "99.99%") << "only all is all";
  EXPECT_EQ(percent(0.5), "50%");
  EXPECT_EQ(percent(0), "0%");
}

TEST(Summary, ErrorOverBoundIsTheRatio) {
  parity::OwnError row{.error = 8, .expected = 1, .worst_ratio = 16};
  EXPECT_EQ(bounded(row).measure, BoundedError::Measure::kRow);
  EXPECT_DOUBLE_EQ(bounded(row).error / bounded(row).bound, row.ratio());
  parity::OwnError element{.error = 1, .expected = 1, .worst_ratio = 160};
  element.recorded = 30;
  element.replayed = 10;
  EXPECT_EQ(bounded(element).measure, BoundedError::Measure::kElement);
  EXPECT_EQ(bounded(element).error, 20);
  EXPECT_DOUBLE_EQ(bounded(element).error / bounded(element).bound, element.ratio());
  parity::OwnError nan{.error = 1, .expected = 1, .non_finite = true};
  EXPECT_EQ(bounded(nan).measure, BoundedError::Measure::kNonFinite);
}

TEST(Summary, HeadlinesSayWhoIsWrongAndWhere) {
  Comparison c = defective();
  EXPECT_EQ(headline(c), "Not in parity: the suspect is wrong at blk.1.ffn_act, position 3");
  c.first_defect->side = Side::kReference;
  EXPECT_NE(headline(c).find("the reference is wrong"), std::string::npos);
  c.first_defect->side = Side::kBoth;
  EXPECT_NE(headline(c).find("both sides are wrong"), std::string::npos);
  c.first_defect->side = Side::kUndetermined;
  EXPECT_NE(headline(c).find("the sides differ from blk.1.ffn_act"), std::string::npos);
  Comparison good;
  good.parity = true;
  good.judged = 1;
  good.positions_compared = good.positions_judged = 9;
  for (const char* verdict : {"exact", "rounding", "drift"}) {
    good.verdict = verdict;
    EXPECT_TRUE(headline(good).starts_with("In parity: ")) << verdict;
    EXPECT_EQ(evidence(good, subject()), "");
  }
  good.verdict = "exact";
  good.coverage = 0.5;
  EXPECT_EQ(headline(good),
            "In parity: every number that both sides have is the same; coverage 50%");
  good.coverage = 1;
  EXPECT_EQ(headline(good), "In parity: every number is the same; coverage 100%");
  good.verdict = "drift";
  // Parity is said only of what was judged.
  good.positions_judged = 2;
  EXPECT_EQ(
      headline(good),
      "In parity at the 2 (of 9) positions judged: every op within rounding, differences only "
      "inherited; coverage 100%");
  good.unproved = "no model file was given (-m)";
  EXPECT_EQ(
      headline(good),
      "In parity: no difference is larger than the declared precision may explain; nothing was "
      "proved: no model file was given (-m); coverage 100%");
  Comparison other;
  other.prompts = parity::PromptDifference{"text", "the texts differ"};
  other.tokens.first_difference = 2;
  Subject with_tokens = subject();
  with_tokens.difference = TokenPair{2, 17, {}, " the\n", {}};
  EXPECT_EQ(headline(other), "Not in parity: the prompts differ from token 2 on: the texts differ");
  EXPECT_EQ(evidence(other, with_tokens),
            "Token 2: the reference 17 ' the\\n', the suspect has ended.");
  // A side that is wrong on its own tokens is told even so.
  other.first_defect = defective().first_defect;
  EXPECT_EQ(
      headline(other),
      "Not in parity: the prompts differ from token 2 on: the texts differ; and the suspect is "
      "wrong at blk.1.ffn_act, position 3");
}

TEST(Summary, HeadlinesSayWhatIsMissing) {
  Comparison c;
  c.verdict = "inconclusive";
  c.coverage = 0.0039;
  c.evidence.missing = "the suspect recorded no logits";
  EXPECT_EQ(headline(c),
            "Inconclusive: nothing that was compared is wrong, but the suspect recorded no logits; "
            "coverage 0.39%");
  c.evidence.missing.clear();
  c.coverage = 0.93;
  c.min_coverage = 0.95;
  EXPECT_EQ(
      headline(c),
      "Inconclusive: nothing that was compared is wrong, but coverage 93% is less than the 95% "
      "asked for");
}

TEST(Summary, HeadlinesOfChoicesAndForks) {
  Comparison c;
  c.verdict = "exact";
  c.parity = true;
  c.coverage = 1;
  c.fork.emplace();
  c.fork->sampled = true;
  c.reference.choices.sampling = {.known = true};
  c.suspect.choices.sampling = {.known = true, .temperature = 0.9, .top_k = 40};
  EXPECT_EQ(headline(c),
            "In parity up to the first choice; the two sampled differently (temperature 0 and "
            "temperature 0.9, top_k 40): every number is the same; coverage 100%");
  c.parity = false;
  c.verdict = "defect";
  c.first_defect = parity::Defect{parity::kChoice, -1, 4, Side::kReference, {}};
  c.first_defect->choice = parity::Choice{.position = 4,
                                          .token = 7,
                                          .logit = 1.5,
                                          .largest = 3,
                                          .largest_logit = 2.5,
                                          .possible = false};
  EXPECT_EQ(
      headline(c),
      "Not in parity: the reference chose a token at position 4 that temperature 0 cannot have "
      "chosen");
  EXPECT_EQ(evidence(c, subject()),
            "It took token 7 (logit 1.5); token 3 has the largest logit (2.5).");
}

TEST(Summary, ASparseTraceDoesNotNameAnOp) {
  Comparison c = defective();
  c.first_defect->after = "embedding";
  EXPECT_EQ(headline(c),
            "Not in parity: the suspect is wrong between embedding and blk.1.ffn_act, position 3");
  EXPECT_NE(evidence(c, subject()).find("record 'ops' to see which one"), std::string::npos);
  c.first_defect->after = "";
  EXPECT_NE(headline(c).find("between the tokens and blk.1.ffn_act"), std::string::npos);
}

TEST(Summary, TheShapeOfTheErrorIsTold) {
  Comparison c = defective();
  parity::ErrorShape shape;
  shape.elements = 512;
  shape.wrong_elements = 1;
  shape.columns = {17};
  shape.same_everywhere = true;
  shape.rows = 30;
  for (int64_t i = 0; i < 30; ++i) shape.positions.push_back(i);
  c.first_defect->shape = shape;
  c.first_defect->followers = 31;
  const auto told = [&] { return evidence(c, subject()); };
  EXPECT_TRUE(told().ends_with(
      "Wrong: 1 of 512 elements (column 17), the same at all 30 positions. 31 later checkpoints "
      "differ by what they inherit."))
      << told();
  c.first_defect->followers = 0;
  c.first_defect->shape->positions = {2, 3, 4, 9};
  c.first_defect->shape->columns = {0, 1, 2, 3, 8};
  c.first_defect->shape->wrong_elements = 5;
  c.first_defect->shape->same_everywhere = false;
  c.first_defect->shape->heads = 8;
  c.first_defect->shape->wrong_heads = {0, 2};
  EXPECT_TRUE(
      told().ends_with("Wrong: 5 of 512 elements (columns 0 to 3, 8), in heads 0, 2 of 8, at 4 "
                       "of 30 positions (2 to 4, 9)."))
      << told();
  c.first_defect->shape->wrong_elements = 512;
  c.first_defect->shape->wrong_heads = {0, 1, 2, 3, 4, 5, 6, 7};
  c.first_defect->shape->positions = {0};
  c.first_defect->shape->rows = 1;
  EXPECT_TRUE(told().ends_with("Wrong: all 512 elements.")) << told();
  const auto json = nlohmann::json::parse(json_report(c, subject()))["first_defect"]["shape"];
  EXPECT_EQ(json["wrong_elements"], 512);
  EXPECT_EQ(json["columns"], nlohmann::json::parse("[[0, 3], [8, 8]]"));
  EXPECT_EQ(json["positions"], nlohmann::json::parse("[[0, 0]]"));
}

TEST(Summary, SaysWhatAnEngineDeclares) {
  const parity::TracedModel model;
  auto recording = model.record({1, 2}, 2);
  recording.manifest.engine.precision = {"f32", "e4m3:row", "bf16", "int8:row"};
  EXPECT_EQ(describe(model.write(recording)).engine,
            "test 1 on cpu, f32, activations e4m3:row, kv bf16, weights int8:row");
  recording.manifest.engine.precision = {"f32", "f32", {}, {}};
  EXPECT_EQ(describe(model.write(recording)).engine, "test 1 on cpu, f32");
}

TEST(Summary, TheWorstComeFirst) {
  const Comparison c = defective();
  const auto list = worst(c, 3);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]->name, "blk.1.ffn_act");
  EXPECT_EQ(list[1]->name, "logits");
  EXPECT_EQ(list[2]->name, "blk.1.output");
  EXPECT_EQ(stations(c).size(), 4u);
  // In parity the verdict is about own errors: how near an op comes to its bound.
  Comparison good = c;
  good.parity = true;
  good.checkpoints[3].verdict = Verdict::kRounding;
  good.checkpoints[2].suspect.worst = parity::OwnError{.error = 3, .expected = 1};
  good.checkpoints[3].suspect.worst = parity::OwnError{.error = 1, .expected = 1};
  EXPECT_EQ(worst(good, 1)[0]->name, "blk.0.output");
}

}  // namespace
}  // namespace lockstep::report
