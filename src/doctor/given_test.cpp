#include "doctor/given.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep::doctor
