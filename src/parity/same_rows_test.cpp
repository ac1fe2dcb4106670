#include "parity/same_rows.h"

#include "parity/test_judging.h"
#include "trace/checkpoints.h"

namespace lockstep::parity {
namespace {

class SameRowsTest : public JudgingTest {
 protected:
  SideScope side(const trace::Trace& trace) const {
    SideScope out;
    out.trace = &trace;
    out.model = &traced.model();
    out.forwards = forwards_of(traced.model(), trace).value();
    out.precision = trace.manifest().engine.precision;
    out.tokens = trace.manifest().tokens;
    for (int64_t p = 0; p < std::ssize(out.tokens); ++p) out.replayed.push_back(p);
    return out;
  }

  // The checkpoints that one judgement does for both sides.
  std::vector<std::string> shared(const Recording& a, const Recording& b,
                                  std::string_view used = "ops") const {
    const trace::Trace first = traced.write(a);
    const trace::Trace second = traced.write(b);
    const SideScope of_a = side(first);
    const SideScope of_b = side(second);
    SameRows same(of_a, of_b, used);
    std::vector<std::string> out;
    const op::Program& program = of_a.forwards.front().program;
    for (size_t id = 0; id < program.values.size(); ++id)
      if (same.of(static_cast<op::ValueId>(id))) out.push_back(program.values[id].name);
    return out;
  }

  static bool has(const std::vector<std::string>& names, const char* name) {
    return std::ranges::find(names, name) != names.end();
  }

  static std::vector<std::string> sorted(std::vector<std::string> names) {
    std::ranges::sort(names);
    return names;
  }

  const Recording ops =
      only(original, [](const std::string& name) { return trace::in_checkpoints("ops", name); });
};

TEST_F(SameRowsTest, AllThatWasRecordedAlikeIsShared) {
  EXPECT_EQ(sorted(shared(ops, ops)), sorted(ops.order));
  // With attention's parts too.
  EXPECT_EQ(sorted(shared(original, original, "all")), sorted(original.order));
}

TEST_F(SameRowsTest, OneOtherNumberIsSeenByAllThatReadIt) {
  Recording other = ops;
  other.at("blk.1.q", 4, 3) += 1e-9;
  const auto names = shared(ops, other);
  EXPECT_FALSE(has(names, "blk.1.q"));
  EXPECT_FALSE(has(names, "blk.1.q_rope"));
  EXPECT_TRUE(has(names, "blk.1.k"));
  EXPECT_TRUE(has(names, "logits"));
  EXPECT_EQ(names.size() + 2, ops.order.size());
  // A score is no input of the mix, but where it was recorded the mix is judged by it.
  other = original;
  other.values.at("blk.0.attn_scores").numbers[0] += 1;
  EXPECT_FALSE(has(shared(original, other, "all"), "blk.0.attn_mix"));
}

TEST_F(SameRowsTest, WhatWasNotRecordedIsNotShared) {
  Recording fewer = ops;
  fewer.remove("final_norm");
  EXPECT_FALSE(has(shared(fewer, fewer), "logits"));
  EXPECT_FALSE(has(shared(ops, fewer), "logits"));
  EXPECT_TRUE(has(shared(fewer, fewer), "blk.1.q"));
  // Nor what is not to be read.
  EXPECT_FALSE(has(shared(ops, ops, "logits"), "logits"));
}

// As many rows as numbers in a row, so that its shape could pass for rows.
TEST_F(SameRowsTest, WhatHasTheShapeOfScoresIsNoInput) {
  const int64_t width = original.values.at("blk.1.attn_norm").shape[1];
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < width; ++i) tokens.push_back(static_cast<int32_t>(i * 7 % 61));
  Recording odd = only(traced.record(tokens, width),
                       [](const std::string& name) { return trace::in_checkpoints("ops", name); });
  EXPECT_TRUE(has(shared(odd, odd), "blk.1.q"));
  odd.values.at("blk.1.attn_norm").shape = {width, width, 1};
  EXPECT_FALSE(has(shared(odd, odd), "blk.1.q"));
  // It is computed from what lies before, which may differ.
  Recording wrong = odd;
  wrong.at("blk.0.output", 5, 3) += 0.5;
  const Comparison c = judge(odd, wrong);
  EXPECT_TRUE(find(c, "blk.1.q").reference.defects.empty());
  EXPECT_EQ(find(c, "blk.1.q").suspect.defects, std::vector<int64_t>{5});
}

// What rounding explains depends on the types of all that belongs to an op.
TEST_F(SameRowsTest, AnotherTypeCountsAlsoWhereNothingWasRecorded) {
  const auto with_scores = [&](DType dtype) {
    Recording out = ops;
    out.manifest.checkpoints = {{"mine", DType::kF64, 1}, {"blk.0.attn_scores", dtype, 4}};
    return out;
  };
  const Recording fine = with_scores(DType::kF64);
  const Recording coarse = with_scores(DType::kF16);
  EXPECT_TRUE(has(shared(fine, fine, "all"), "blk.0.attn_mix"));
  EXPECT_FALSE(has(shared(fine, coarse, "all"), "blk.0.attn_mix"));
  EXPECT_TRUE(has(shared(fine, coarse, "all"), "blk.1.attn_mix"));
}

TEST_F(SameRowsTest, OtherWaysToComputeAreNot) {
  Recording other = ops;
  other.manifest.engine.precision.compute = "f32";
  EXPECT_TRUE(shared(ops, other).empty());
  other = ops;
  other.second_step = 5;
  EXPECT_TRUE(shared(ops, other).empty());
  EXPECT_EQ(sorted(shared(other, other)), sorted(ops.order));
  other = ops;
  other.manifest.forward.rope_base = 20000;
  EXPECT_TRUE(shared(ops, other).empty());
  other = ops;
  other.first_position = 1;
  EXPECT_TRUE(shared(other, other).empty()) << "the first position has to be derived";
}

// A mistake on one side is this side's alone, and everything else is found as it is without it.
TEST_F(SameRowsTest, JudgementsAreThoseOfEachSideByItself) {
  Recording wrong = ops;
  wrong.at("blk.1.ffn_up", 3, 7) += 0.5;
  const Comparison right = judge(ops, ops);
  const Comparison c = judge(ops, wrong);
  EXPECT_TRUE(right.parity);
  ASSERT_TRUE(c.first_defect);
  EXPECT_EQ(c.first_defect->checkpoint, "blk.1.ffn_up");
  EXPECT_EQ(c.first_defect->side, Side::kSuspect);
  for (size_t i = 0; i < c.checkpoints.size(); ++i) {
    const CheckpointResult& result = c.checkpoints[i];
    SCOPED_TRACE(result.name);
    EXPECT_EQ(result.reference.judged, right.checkpoints[i].reference.judged);
    EXPECT_EQ(result.suspect.judged, right.checkpoints[i].suspect.judged);
    EXPECT_EQ(result.reference.worst->error, right.checkpoints[i].reference.worst->error);
    if (result.name.starts_with("blk.0.")) {
      EXPECT_EQ(result.suspect.worst->error, result.reference.worst->error);
    }
  }
  const auto swapped = judge(wrong, ops);
  ASSERT_TRUE(swapped.first_defect);
  EXPECT_EQ(swapped.first_defect->side, Side::kReference);
}

}  // namespace
}  // namespace lockstep::parity
