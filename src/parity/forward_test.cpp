// Forward passes that depend on more than the model file.
#include "parity/test_judging.h"

namespace lockstep::parity {
namespace {

// Phi-3's long factors depend on the length of the context, of which a short trace shows nothing.
class Contexts : public testing::Test {
 protected:
  static forge::Spec spec() {
    forge::Spec out;
    out.arch = "phi3";
    out.context = 64;
    out.layers = 1;
    out.rope_factors.kind = forge::RopeFactors::Kind::kLongShort;
    out.rope_factors.original_context = 16;
    return out;
  }
  Comparison judge(const Recording& a, const Recording& b) {
    auto out = compare(traced.write(a), traced.write(b), &traced.model(), {});
    if (!out.ok()) throw std::runtime_error(out.error().message);
    return *out;
  }
  const TracedModel traced{spec()};
};

TEST_F(Contexts, ThatTheManifestSaysAreReplayed) {
  for (const int64_t context : {9, 16, 17, 64}) {
    Recording run = traced.record(kTokens, kPrompt, context);
    run.manifest.forward.context_length = context;
    EXPECT_TRUE(judge(run, run).parity) << context;
    // Said wrongly, it is an error.
    run.manifest.forward.context_length = context > 16 ? 9 : 64;
    const Comparison c = judge(run, run);
    ASSERT_TRUE(c.first_defect) << context;
    EXPECT_EQ(c.first_defect->checkpoint, "blk.0.q_rope");
  }
}

TEST_F(Contexts, ThatAreNotSaidAreFoundOut) {
  for (const auto& [context, fits] : {std::pair(9, "at most 16"), std::pair(64, "more than 16")}) {
    const Recording run = traced.record(kTokens, kPrompt, context);
    const Comparison c = judge(run, run);
    EXPECT_TRUE(c.parity) << context;
    EXPECT_NE(c.suspect.assumed.find(fits), std::string::npos) << c.suspect.assumed;
    EXPECT_TRUE(any_note(c, "the suspect does not say its context length; what fits"));
  }
}

TEST_F(Contexts, ThatDifferAreNoParity) {
  Recording near = traced.record(kTokens, kPrompt, 9);
  near.manifest.forward.context_length = 9;
  Recording far = traced.record(kTokens, kPrompt, 64);
  far.manifest.forward.context_length = 64;
  const Comparison c = judge(near, far);
  EXPECT_FALSE(c.parity);
  EXPECT_EQ(c.verdict, "different settings");
  EXPECT_FALSE(c.first_defect) << "each is right by its own";
  // Within the original context one that grows is a short one.
  near.manifest.forward.context_length.reset();
  near.manifest.forward.context_grows = true;
  Recording other = near;
  other.manifest.forward = {9, false, {}, {}};
  for (auto& [name, value] : other.values)
    for (double& number : value.numbers) number *= 1 + 1e-16;
  other.values.at("embedding").numbers[0] *= 1 + 3e-16;
  EXPECT_TRUE(judge(near, other).parity);
  EXPECT_NE(c.other_settings.find("the suspect with a context of more than 16"), std::string::npos);
}

// An engine may look at the positions so far in every step, as transformers does.
TEST_F(Contexts, ThatGrowWithThePositions) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 20; ++i) tokens.push_back(3 + 7 * i);
  const auto before_attention = [](const std::string& name) {
    for (const char* kept : {"embedding", "attn_norm", ".q", ".k", ".v", "_rope"})
      if (name.ends_with(kept)) return true;
    return false;
  };
  Recording run = only(traced.record(tokens, 10, 64), before_attention);
  // The short factors, of the positions that a context of 16 has.
  Recording early = traced.record({tokens.begin(), tokens.begin() + 16}, 10, 16);
  run.second_step = 10;
  for (const char* name : {"blk.0.q_rope", "blk.0.k_rope"})
    for (int64_t position = 0; position < 10; ++position)
      for (int64_t i = 0; i < 64; ++i) run.at(name, position, i) = early.at(name, position, i);
  run.manifest.forward.context_grows = true;
  EXPECT_FALSE(judge(run, run).first_defect);
  run.manifest.forward.context_grows = false;
  const Comparison c = judge(run, run);
  EXPECT_FALSE(c.first_defect);
  EXPECT_NE(c.reference.assumed.find("grows"), std::string::npos) << c.reference.assumed;
  run.manifest.forward.context_length = 64;
  EXPECT_EQ(judge(run, run).first_defect->checkpoint, "blk.0.q_rope");
}

}  // namespace
}  // namespace lockstep::parity
