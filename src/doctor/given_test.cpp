#include "doctor/given.h"

#include <gtest/gtest.h>

#include "doctor/doctor.h"
#include "parity/scope.h"
#include "parity/test_judging.h"

namespace lockstep::doctor {
namespace {

std::vector<Diagnosis> given(const parity::Comparison& comparison) {
  std::vector<Diagnosis> out;
  diagnose_given(comparison, {}, out);
  return out;
}

TEST(Given, PromptsThatDiffer) {
  const std::pair<const char*, const char*> kinds[] = {{"bos_missing", "tokens.bos"},
                                                       {"bos_doubled", "tokens.bos"},
                                                       {"shift", "tokens.shifted"},
                                                       {"template", "tokens.template"}};
  for (const auto& [kind, cause] : kinds) {
    parity::Comparison comparison;
    comparison.prompts = {kind, "the one is not the other"};
    comparison.tokens.offset = 2;
    const auto found = given(comparison);
    ASSERT_EQ(found.size(), 1U) << kind;
    EXPECT_EQ(found[0].cause, cause);
    EXPECT_EQ(found[0].side, parity::Side::kUndetermined);
    EXPECT_TRUE(found[0].proved);
    EXPECT_EQ(found[0].text, "The prompts differ: the one is not the other");
    EXPECT_EQ(found[0].fix, "Give both engines the same tokens.");
    EXPECT_EQ(std::get<int64_t>(found[0].parameters.at(0).value), 2);
  }
  parity::Comparison other;
  other.prompts = {"text", "another text"};
  EXPECT_TRUE(given(other).empty());
}

TEST(Given, FilesThatDiffer) {
  parity::Comparison comparison;
  comparison.other_models = "a.gguf and b.gguf";
  const auto found = given(comparison);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].cause, "model.other_file");
  EXPECT_EQ(found[0].text, "The sides ran different model files: a.gguf and b.gguf");
  EXPECT_EQ(std::get<std::string>(found[0].parameters.at(0).value), "a.gguf and b.gguf");
  // Nothing is to be explained.
  comparison.parity = true;
  EXPECT_TRUE(given(comparison).empty());
}

// Two traces, as `compare` has them.
std::vector<Diagnosis> diagnosed(const parity::TracedModel& traced, const parity::Recording& a,
                                 const parity::Recording& b, std::string* verdict = nullptr) {
  const trace::Trace reference = traced.write(a);
  const trace::Trace suspect = traced.write(b);
  parity::Scope scope;
  const auto found = parity::compare(reference, suspect, &traced.model(), {}, &scope);
  EXPECT_TRUE(found.ok());
  if (verdict != nullptr) *verdict = found->verdict;
  return diagnose(*found, scope, &traced.model(), {.seconds = 10, .threads = 1});
}

forge::Spec small() {
  return {.layers = 1, .width = 32, .heads = 2, .feed_forward = 24, .context = 64, .seed = 5};
}

// The weights of a small model, with other settings of the rotation in the file.
parity::Recording run_with(const parity::TracedModel& traced,
                           const std::function<void(forge::Spec&)>& alter) {
  forge::Spec spec = small();
  alter(spec);
  parity::Recording out = parity::TracedModel(spec).record(parity::kTokens, parity::kPrompt);
  out.manifest.model.fingerprint = gguf::fingerprint(traced.model().file());
  return out;
}

double value_of(const Diagnosis& diagnosis) {
  return std::get<double>(diagnosis.parameters.at(0).value);
}

TEST(Given, RotationsThatAManifestSays) {
  const parity::TracedModel traced(small());
  parity::Recording own = traced.record(parity::kTokens, parity::kPrompt);
  parity::Recording base = run_with(traced, [](forge::Spec& spec) { spec.rope_base = 500000; });
  base.manifest.forward.rope_base = 500000;
  const auto linear = [](forge::Spec& spec) {
    spec.rope_scaling = {forge::RopeScaling::Kind::kLinear, 4, 0};
  };
  parity::Recording scale = run_with(traced, linear);
  scale.manifest.forward.rope_scale = 0.25;
  parity::Recording both = run_with(traced, [&](forge::Spec& spec) {
    linear(spec);
    spec.rope_base = 500000;
  });
  both.manifest.forward.rope_scale = 0.25;
  both.manifest.forward.rope_base = 500000;
  // To say what the file says is to say nothing.
  for (const bool says : {false, true}) {
    if (says) own.manifest.forward.rope_base = 10000;
    std::string verdict;
    auto found = diagnosed(traced, own, base, &verdict);
    EXPECT_EQ(verdict, "different settings");
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].cause, "rope.base");
    EXPECT_EQ(found[0].side, parity::Side::kUndetermined);
    EXPECT_EQ(found[0].checkpoint, "settings");
    EXPECT_TRUE(found[0].proved);
    EXPECT_EQ(value_of(found[0]), 500000);
    EXPECT_NE(found[0].text.find("the suspect with a rope base of 500000"), std::string::npos)
        << found[0].text;
    EXPECT_EQ(found[0].fix,
              "Give both engines the same settings of the rotation and the same context length.");
    found = diagnosed(traced, own, scale);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].cause, "rope.scaling");
    EXPECT_EQ(value_of(found[0]), 0.25);
    found = diagnosed(traced, own, both);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].cause, "rope.base");
    EXPECT_EQ(found[1].cause, "rope.scaling");
    found = diagnosed(traced, both, scale);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(value_of(found[0]), 10000) << "the file's own";
    EXPECT_TRUE(diagnosed(traced, base, base).empty());
  }
}

TEST(Given, ContextsThatChooseOtherFactors) {
  forge::Spec spec = small();
  spec.arch = "phi3";
  spec.rope_factors = {forge::RopeFactors::Kind::kLongShort, 8, 16};
  const parity::TracedModel traced(spec);
  parity::Recording near = traced.record(parity::kTokens, parity::kPrompt, 9);
  near.manifest.forward.context_length = 9;
  parity::Recording far = traced.record(parity::kTokens, parity::kPrompt, 64);
  far.manifest.forward.context_length = 64;
  const auto found = diagnosed(traced, near, far);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].cause, "rope.factors");
  EXPECT_TRUE(found[0].parameters.empty());
}

TEST(Given, TokensOfTraces) {
  const parity::TracedModel traced(small());
  const auto prompt = [&](const std::vector<int32_t>& tokens) {
    return traced.record(tokens, std::ssize(tokens));
  };
  const parity::Recording whole = prompt({1, 7, 8, 9, 10, 11, 12});
  struct Other {
    std::vector<int32_t> tokens;
    const char* cause;
    std::optional<int64_t> offset;
  };
  const Other others[] = {{{7, 8, 9, 10, 11, 12}, "tokens.bos", 1},
                          {{1, 1, 7, 8, 9, 10, 11, 12}, "tokens.bos", -1},
                          {{8, 9, 10, 11, 12}, "tokens.shifted", 2},
                          {{90, 91, 8, 9, 10, 11, 12, 93}, "tokens.template", std::nullopt}};
  for (const Other& other : others) {
    SCOPED_TRACE(other.cause);
    for (const bool swapped : {false, true}) {
      const auto found = swapped ? diagnosed(traced, prompt(other.tokens), whole)
                                 : diagnosed(traced, whole, prompt(other.tokens));
      ASSERT_EQ(found.size(), 1U);
      EXPECT_EQ(found[0].cause, other.cause);
      EXPECT_EQ(found[0].checkpoint, "tokens");
      ASSERT_EQ(found[0].parameters.empty(), !other.offset);
      if (other.offset) {
        EXPECT_EQ(std::get<int64_t>(found[0].parameters[0].value),
                  swapped ? -*other.offset : *other.offset);
      }
    }
  }
}

TEST(Given, AnotherFile) {
  const parity::TracedModel traced(small());
  forge::Spec spec = small();
  spec.seed = 6;
  const parity::Recording other =
      parity::TracedModel(spec).record(parity::kTokens, parity::kPrompt);
  const auto found = diagnosed(traced, traced.record(parity::kTokens, parity::kPrompt), other);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].cause, "model.other_file");
  EXPECT_EQ(found[0].checkpoint, "model");
}

}  // namespace
}  // namespace lockstep::doctor
