#include "quant/tensor_recipe.h"

#include <gtest/gtest.h>

namespace lockstep::quant {
namespace {

std::string problem(std::string_view text) {
  const auto recipe = TensorRecipe::parse(text, "mix.txt");
  return recipe.ok() ? "" : recipe.error().message;
}

std::string_view format_of(const TensorRecipe& recipe, std::string_view tensor) {
  const FormatInfo* format = recipe.format_of(tensor);
  return format != nullptr ? format->name : "none";
}

TEST(TensorRecipe, TheLastLineThatFitsCounts) {
  const auto recipe = TensorRecipe::parse(
      "# a mix\n"
      "\n"
      "blk.* q4_k\r\n"
      "  blk.*.attn_v.weight\tQ6_K   # worth it\n"
      "blk.1*.weight F16\n"
      "output.weight Q8_0",
      "mix.txt");
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  EXPECT_EQ(format_of(*recipe, "blk.0.ffn_up.weight"), "Q4_K");
  EXPECT_EQ(format_of(*recipe, "blk.0.attn_v.weight"), "Q6_K");
  EXPECT_EQ(format_of(*recipe, "blk.1.attn_v.weight"), "F16");
  EXPECT_EQ(format_of(*recipe, "blk.17.ffn_up.weight"), "F16");
  EXPECT_EQ(format_of(*recipe, "output.weight"), "Q8_0");
  EXPECT_EQ(format_of(*recipe, "output.weights"), "none");
  EXPECT_EQ(format_of(*recipe, "token_embd.weight"), "none");
  EXPECT_EQ(recipe->unused({"blk.0.attn_v.weight", "blk.1.weight", "output.weight"}), nullptr);
  const TensorRecipe::Line* unused = recipe->unused({"blk.0.attn_v.weight", "output.weight"});
  ASSERT_NE(unused, nullptr);
  EXPECT_EQ(unused->pattern, "blk.1*.weight");
  EXPECT_EQ(unused->number, 5);
}

TEST(TensorRecipe, StarsStandForAnyText) {
  const auto fits = [](const std::string& pattern, std::string_view text) {
    return TensorRecipe::parse(pattern + " F16", "x")->format_of(text) != nullptr;
  };
  EXPECT_TRUE(fits("*", ""));
  EXPECT_TRUE(fits("**", "a"));
  EXPECT_TRUE(fits("a*b*c", "abbbc"));
  EXPECT_TRUE(fits("*ab", "aab"));
  EXPECT_TRUE(fits("a*", "a"));
  EXPECT_FALSE(fits("a*b", "abc"));
  EXPECT_FALSE(fits("a", "aa"));
  EXPECT_FALSE(fits("a*a", "a"));
  EXPECT_FALSE(fits("a**b*c", "acb"));
}

TEST(TensorRecipe, ErrorsNameTheLine) {
  EXPECT_EQ(
      problem("* Q4_K\nblk.0\n"),
      "mix.txt: line 2: found 'blk.0', expected a tensor's name and a format, such as '* Q4_K'");
  EXPECT_EQ(problem("* Q4_K Q5_K\n"),
            "mix.txt: line 1: found '* Q4_K Q5_K', expected a tensor's name and a format, such as "
            "'* Q4_K'");
  const std::string formats =
      "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, BF16, MXFP4";
  EXPECT_EQ(problem("* Q4_K_M"),
            "mix.txt: line 1: found the format 'Q4_K_M', expected one of " + formats);
  EXPECT_EQ(problem("\n* IQ4_XS"),
            "mix.txt: line 2: found the format 'IQ4_XS', expected one of " + formats);
  EXPECT_EQ(problem("* I32"),
            "mix.txt: line 1: found the format 'I32', expected one of " + formats);
  EXPECT_EQ(problem(""), "mix.txt: no line of a recipe; expected lines such as '* Q4_K'");
  EXPECT_EQ(problem("# nothing\n\n"),
            "mix.txt: no line of a recipe; expected lines such as '* Q4_K'");
  EXPECT_NE(problem("* " + std::string(100'000, '\x1b')).find("\\x1b"), std::string::npos);
  EXPECT_LT(problem("* " + std::string(100'000, '\x1b')).size(), 1000u);
}

}  // namespace
}  // namespace lockstep::quant
