// Traces as other engines write them: padded, partial, coarser than computed, of another file.
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lab.h"
#include "rewrite.h"

namespace lockstep::engines {
namespace {

using parity::Order;
using parity::Verdict;

class Edges : public testing::Test {
 protected:
  Edges()
      : lab_(Lab::forged({.arch = "qwen2",
                          .layers = 2,
                          .width = 40,
                          .heads = 4,
                          .kv_heads = 2,
                          .feed_forward = 37,
                          .vocabulary = 67,
                          .type = "f32",
                          .seed = 3})) {
    job_.prompt = 6;
    job_.tokens = random_tokens(9, 10, 67);
    job_.checkpoints = "all";
    program_ = lab_.program(job_);
  }

  trace::Trace record(const Style& style = {}, const Quirk& quirk = {}) {
    return lab_.record(job_, style, program_, {&quirk, 1});
  }

  trace::Trace record_bug(const std::string& value, const doctor::Alteration& alteration) {
    return lab_.record(job_, {}, engines::altered(program_, value, alteration));
  }

  trace::Trace altered(const trace::Trace& trace, DType dtype,
                       const std::function<bool(Tensor&)>& alter,
                       const std::function<void(trace::Manifest&)>& alter_manifest = {}) {
    const std::string folder = scratch_.next();
    rewrite(trace, folder, dtype, alter, alter_manifest);
    auto opened = trace::Trace::open(folder);
    LS_CHECK(opened.ok(), "{}", opened.error().message);
    return std::move(*opened);
  }

  void expect_clean(const trace::Trace& reference, const trace::Trace& suspect) {
    const auto found = lab_.compare(reference, suspect);
    EXPECT_TRUE(found.parity) << found.verdict;
    if (found.first_defect) {
      ADD_FAILURE() << found.first_defect->checkpoint << " at " << found.first_defect->position
                    << ": " << found.first_defect->own.ratio();
    }
  }

  void expect_defect(const trace::Trace& reference, const trace::Trace& suspect,
                     const std::string& checkpoint, int64_t position, Verdict verdict) {
    const auto found = lab_.compare(reference, suspect);
    EXPECT_FALSE(found.parity);
    ASSERT_TRUE(found.first_defect) << found.verdict;
    EXPECT_EQ(found.first_defect->checkpoint, checkpoint);
    EXPECT_EQ(found.first_defect->position, position);
    EXPECT_EQ(found.first_defect->side, parity::Side::kSuspect);
    EXPECT_EQ(found.verdict, name(verdict));
  }

  op::ValueId id(const std::string& name) const {
    for (size_t i = 0; i < program_.values.size(); ++i)
      if (program_.values[i].name == name) return static_cast<op::ValueId>(i);
    LS_CHECK(false, "{}", name);
  }

  Lab lab_;
  Scratch scratch_;
  Job job_;
  op::Program program_;
};

// Wider rows of scores, with whatever in the columns that do not exist.
TEST_F(Edges, PaddedScores) {
  const auto reference = record();
  for (const double filling : {0.0, -std::numeric_limits<double>::infinity(), 7.5}) {
    const auto padded = altered(record({.order = Order::kLanes8}), DType::kF32, [&](Tensor& t) {
      if (t.shape.size() != 3) return true;
      const int64_t columns = t.shape[2];
      const int64_t wider = (columns + 31) / 32 * 32;
      std::vector<double> out;
      for (size_t i = 0; i < t.values.size(); ++i) {
        out.push_back(t.values[i]);
        if (static_cast<int64_t>(i) % columns == columns - 1)
          out.insert(out.end(), static_cast<size_t>(wider - columns), filling);
      }
      t.values = out;
      t.shape[2] = wider;
      return true;
    });
    expect_clean(reference, padded);
    expect_clean(padded, reference);
  }
}

TEST_F(Edges, GenerationAlone) {
  const auto reference = record();
  job_.recorded_from = job_.prompt;
  for (const char* set : {"all", "ops", "layers", "logits"}) {
    job_.checkpoints = set;
    // Nothing is wrong; but the first token was chosen from logits of the prompt.
    const auto suspect = record({.name = "lanes", .order = Order::kLanes16});
    const auto found = lab_.compare(reference, suspect);
    EXPECT_FALSE(found.first_defect);
    EXPECT_EQ(found.verdict, "inconclusive");
    EXPECT_EQ(found.evidence.needed - found.evidence.found, 1);
  }
  job_.checkpoints = "ops";
  const auto stale = doctor::cache_row(doctor::kValues, 3, 2);
  expect_defect(reference, record_bug("blk.1.attn_mix", stale), "blk.1.attn_mix", job_.prompt,
                Verdict::kDefect);
}

TEST_F(Edges, CoarserInTheTraceThanComputed) {
  const auto reference = record({.name = "f64", .doubles = true});
  const auto exact = record({.name = "f32"});
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const auto coarse = altered(exact, dtype, [](Tensor&) { return true; });
    expect_clean(reference, coarse);
    expect_defect(
        reference,
        altered(record_bug("blk.1.ffn_up", stale_at(4)), dtype, [](Tensor&) { return true; }),
        "blk.1.ffn_up", 4, Verdict::kDefect);
  }
}

TEST_F(Edges, VocabularyWithoutPadding) {
  const auto narrow = altered(record(), DType::kF32, [](Tensor& t) {
    if (t.checkpoint != "logits") return true;
    std::vector<double> out;
    for (size_t i = 0; i < t.values.size(); ++i)
      if (static_cast<int64_t>(i) % t.shape[1] < 60) out.push_back(t.values[i]);
    t.values = out;
    t.shape[1] = 60;
    return true;
  });
  const auto found = lab_.compare(record({.order = Order::kPairwise}), narrow);
  EXPECT_TRUE(found.parity) << found.verdict;
  EXPECT_EQ(found.judged, 1);
}

TEST_F(Edges, ANanIsTheDefectOfWhoMadeIt) {
  const auto reference = record({.order = Order::kLanes4});
  for (const char* name : {"embedding", "blk.0.k", "blk.0.k_rope", "blk.0.attn_mix",
                           "blk.1.ffn_norm", "blk.1.output", "final_norm", "logits"})
    for (const int64_t position : {2, 7}) {
      SCOPED_TRACE(fmt::format("{} at {}", name, position));
      const auto suspect = record({}, {Quirk::Kind::kNan, id(name), position});
      expect_defect(reference, suspect, name, position, Verdict::kGarbage);
      const auto found = lab_.compare(reference, suspect);
      EXPECT_EQ(found.defects, 1);
    }
}

TEST_F(Edges, MasksAreDefectsNotGarbage) {
  const auto reference = record();
  const std::string mix = "blk.1.attn_mix";
  expect_defect(reference, record_bug(mix, doctor::sees_next()), "blk.1.attn_scores", 0,
                Verdict::kDefect);
  expect_defect(reference, record_bug(mix, doctor::not_itself()), "blk.1.attn_scores", 1,
                Verdict::kDefect);
}

TEST_F(Edges, SoftmaxWithoutTheMaximumIsHonest) {
  expect_clean(record(), record({}, {Quirk::Kind::kNoMaximum, id("blk.0.attn_mix"), -1}));
}

// Both sides with the same defect, and a defect in each.
TEST_F(Edges, Sides) {
  const auto good = record({.order = Order::kLanes4});
  const auto bad = record_bug("blk.1.ffn_up", stale_at(4));
  const auto worse = record_bug("blk.0.ffn_up", stale_at(4));
  const auto both = lab_.compare(bad, bad);
  ASSERT_TRUE(both.first_defect);
  EXPECT_EQ(both.first_defect->side, parity::Side::kBoth);
  EXPECT_FALSE(both.parity);
  const auto each = lab_.compare(bad, worse);
  ASSERT_TRUE(each.first_defect);
  EXPECT_EQ(each.first_defect->checkpoint, "blk.0.ffn_up");
  EXPECT_EQ(each.first_defect->side, parity::Side::kSuspect);
  EXPECT_TRUE(lab_.compare(good, good).parity);
}

TEST_F(Edges, AnotherFileIsMeasuredNotJudged) {
  const auto suspect = altered(
      record(), DType::kF32,
      [](Tensor& t) {
        for (double& v : t.values) v *= 1.01;
        return true;
      },
      [](trace::Manifest& m) { m.model.fingerprint = "of another file"; });
  const auto found = lab_.compare(record(), suspect);
  // The first difference is told, and that nobody is to blame for it yet.
  ASSERT_TRUE(found.first_defect);
  EXPECT_EQ(found.first_defect->side, parity::Side::kUndetermined);
  EXPECT_FALSE(found.parity);
  EXPECT_EQ(found.verdict, "differs");
  EXPECT_TRUE(std::ranges::any_of(found.notes, [](const std::string& note) {
    return note.find("only the other side is judged") != std::string::npos;
  }));
  parity::CompareOptions options;
  EXPECT_FALSE(parity::compare(suspect, suspect, &lab_.model(), options).ok());
}

}  // namespace
}  // namespace lockstep::engines
