#include "quant/recipe.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"

namespace lockstep::quant {
namespace {

struct Weight {
  std::string name;
  std::vector<int64_t> dims;
};

struct Sizes {
  int64_t layers, width, ffn, heads, kv_heads, head_size, vocab;
  bool tied = false;
  bool biases = false;  // of q, k and v
  bool fused = false;   // attn_qkv, and gate and up in one

  ModelShape shape() const { return {layers, heads, kv_heads, tied}; }
};

constexpr Sizes kQwen25_05b = {24, 896, 4864, 14, 2, 64, 151936, true, true};
constexpr Sizes kTinyLlama = {22, 2048, 5632, 32, 4, 64, 32000};
constexpr Sizes kLlama3_8b = {32, 4096, 14336, 32, 8, 128, 128256};
constexpr Sizes kPhi3Mini = {32, 3072, 8192, 32, 32, 96, 32064, false, false, true};

std::vector<Weight> weights_of(const Sizes& s) {
  std::vector<Weight> all = {{"token_embd.weight", {s.width, s.vocab}},
                             {"output_norm.weight", {s.width}}};
  if (!s.tied) all.push_back({"output.weight", {s.width, s.vocab}});
  const int64_t q = s.heads * s.head_size, kv = s.kv_heads * s.head_size;
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const auto add = [&](const char* name, std::vector<int64_t> dims) {
      all.push_back({fmt::format("blk.{}.{}", layer, name), std::move(dims)});
    };
    add("attn_norm.weight", {s.width});
    if (s.fused) {
      add("attn_qkv.weight", {s.width, q + 2 * kv});
    } else {
      add("attn_q.weight", {s.width, q});
      add("attn_k.weight", {s.width, kv});
      add("attn_v.weight", {s.width, kv});
    }
    if (s.biases) {
      add("attn_q.bias", {q});
      add("attn_k.bias", {kv});
      add("attn_v.bias", {kv});
    }
    add("attn_output.weight", {q, s.width});
    add("ffn_norm.weight", {s.width});
    if (s.fused) {
      add("ffn_up.weight", {s.width, 2 * s.ffn});
    } else {
      add("ffn_gate.weight", {s.width, s.ffn});
      add("ffn_up.weight", {s.width, s.ffn});
    }
    add("ffn_down.weight", {s.ffn, s.width});
  }
  return all;
}

const Recipe& recipe(std::string_view name) {
  const Recipe* found = find_recipe(name);
  LS_CHECK(found != nullptr, "{}", name);
  return *found;
}

using Mix = std::map<std::string, int>;

Mix mix_of(const Sizes& sizes, std::string_view name) {
  Mix mix;
  for (const Weight& w : weights_of(sizes))
    ++mix[std::string(info(choose_format(recipe(name), sizes.shape(), w.name, w.dims)).name)];
  return mix;
}

std::string bits_per_weight(const Sizes& sizes, std::string_view name) {
  int64_t bytes = 0, values = 0;
  for (const Weight& w : weights_of(sizes)) {
    int64_t n = 1;
    for (const int64_t dim : w.dims) n *= dim;
    values += n;
    bytes += size_bytes(info(choose_format(recipe(name), sizes.shape(), w.name, w.dims)), n);
  }
  return fmt::format("{:.2f}", 8.0 * static_cast<double>(bytes) / static_cast<double>(values));
}

// The counts that llama.cpp prints when it loads the published files.
TEST(Recipe, Q4KMIsWhatThePublishedFilesHold) {
  EXPECT_EQ(mix_of(kQwen25_05b, "Q4_K_M"),
            (Mix{{"F32", 121}, {"Q4_K", 12}, {"Q5_0", 132}, {"Q6_K", 12}, {"Q8_0", 13}}));
  EXPECT_EQ(mix_of(kTinyLlama, "Q4_K_M"), (Mix{{"F32", 45}, {"Q4_K", 135}, {"Q6_K", 21}}));
  EXPECT_EQ(mix_of(kLlama3_8b, "Q4_K_M"), (Mix{{"F32", 65}, {"Q4_K", 193}, {"Q6_K", 33}}));
  EXPECT_EQ(mix_of(kPhi3Mini, "Q4_K_M"),
            (Mix{{"F32", 65}, {"Q4_K", 81}, {"Q5_K", 32}, {"Q6_K", 17}}));
}

TEST(Recipe, OtherMixes) {
  EXPECT_EQ(mix_of(kLlama3_8b, "Q2_K"),
            (Mix{{"F32", 65}, {"Q2_K", 129}, {"Q3_K", 64}, {"Q4_K", 32}, {"Q6_K", 1}}));
  EXPECT_EQ(mix_of(kLlama3_8b, "Q3_K_M"),
            (Mix{{"F32", 65}, {"Q3_K", 129}, {"Q4_K", 92}, {"Q5_K", 4}, {"Q6_K", 1}}));
  EXPECT_EQ(mix_of(kLlama3_8b, "Q4_K_S"),
            (Mix{{"F32", 65}, {"Q4_K", 217}, {"Q5_K", 8}, {"Q6_K", 1}}));
  EXPECT_EQ(mix_of(kLlama3_8b, "Q5_K_M"), (Mix{{"F32", 65}, {"Q5_K", 193}, {"Q6_K", 33}}));
  EXPECT_EQ(mix_of(kLlama3_8b, "Q6_K"), (Mix{{"F32", 65}, {"Q6_K", 226}}));
  EXPECT_EQ(mix_of(kLlama3_8b, "Q4_0"), (Mix{{"F32", 65}, {"Q4_0", 225}, {"Q6_K", 1}}));
  EXPECT_EQ(mix_of(kLlama3_8b, "Q8_0"), (Mix{{"F32", 65}, {"Q8_0", 226}}));
  EXPECT_EQ(mix_of(kLlama3_8b, "F16"), (Mix{{"F32", 65}, {"F16", 226}}));
  EXPECT_EQ(mix_of(kLlama3_8b, "MXFP4"), (Mix{{"F32", 65}, {"MXFP4", 224}, {"Q8_0", 2}}));
  EXPECT_EQ(mix_of(kLlama3_8b, "F32"), (Mix{{"F32", 291}}));
  // Heads of their own keys and values: attn_v is larger, so Q2_K gives it less.
  Sizes no_sharing = kTinyLlama;
  no_sharing.kv_heads = no_sharing.heads;
  EXPECT_EQ(mix_of(no_sharing, "Q2_K"),
            (Mix{{"F32", 45}, {"Q2_K", 89}, {"Q3_K", 66}, {"Q6_K", 1}}));
}

// As the published files of gpt-oss have it.
TEST(Recipe, BesideExpertsMxfp4IsForTheseAlone) {
  ModelShape shape{.layers = 24, .heads = 64, .kv_heads = 8};
  shape.experts = true;
  const auto of = [&](std::string_view name, std::vector<int64_t> dims) {
    return choose_format(recipe("MXFP4"), shape, name, dims);
  };
  EXPECT_EQ(of("blk.3.ffn_gate_exps.weight", {2880, 2880, 32}), Format::kMXFP4);
  EXPECT_EQ(of("blk.3.ffn_down_exps.weight", {2880, 2880, 32}), Format::kMXFP4);
  EXPECT_EQ(of("blk.3.ffn_down_exps.bias", {2880, 32}), Format::kF32);
  EXPECT_EQ(of("blk.3.attn_q.weight", {2880, 4096}), Format::kQ8_0);
  EXPECT_EQ(of("blk.3.attn_v.weight", {2880, 512}), Format::kQ8_0);
  EXPECT_EQ(of("blk.3.attn_sinks.weight", {64}), Format::kF32);
  EXPECT_EQ(of("token_embd.weight", {2880, 201088}), Format::kQ8_0);
  EXPECT_EQ(of("output.weight", {2880, 201088}), Format::kQ8_0);
}

// As llama.cpp reports for the published files of Llama 3 8B and TinyLlama.
TEST(Recipe, BitsPerWeight) {
  EXPECT_EQ(bits_per_weight(kLlama3_8b, "Q4_K_M"), "4.89");
  EXPECT_EQ(bits_per_weight(kLlama3_8b, "Q5_K_M"), "5.70");
  EXPECT_EQ(bits_per_weight(kLlama3_8b, "Q6_K"), "6.56");
  EXPECT_EQ(bits_per_weight(kLlama3_8b, "Q8_0"), "8.50");
  EXPECT_EQ(bits_per_weight(kLlama3_8b, "Q3_K_M"), "4.00");
  EXPECT_EQ(bits_per_weight(kLlama3_8b, "Q2_K"), "3.16");
  EXPECT_EQ(bits_per_weight(kTinyLlama, "Q4_K_M"), "4.85");
  EXPECT_EQ(bits_per_weight(kQwen25_05b, "Q4_K_M"), "6.35");
}

TEST(Recipe, LargeModelsGiveAttnVMore) {
  const ModelShape shape = {80, 64, 8, false};
  const std::vector<int64_t> dims = {8192, 1024};
  EXPECT_EQ(choose_format(recipe("Q4_K_M"), shape, "blk.10.attn_v.weight", dims), Format::kQ5_K);
  EXPECT_EQ(choose_format(recipe("Q4_K_M"), shape, "blk.0.attn_v.weight", dims), Format::kQ6_K);
}

TEST(Recipe, LeavesSomeTensorsAlone) {
  const auto format = [](std::string_view name, std::vector<int64_t> dims) {
    return choose_format(recipe("Q4_0"), {2, 4, 4, false}, name, dims);
  };
  EXPECT_EQ(format("blk.0.attn_norm.weight", {64}), Format::kF32);
  EXPECT_EQ(format("blk.0.attn_q.bias", {64}), Format::kF32);
  EXPECT_EQ(format("blk.0.attn_q_norm.weight", {64, 2}), Format::kF32);
  EXPECT_EQ(format("position_embd.weight", {64, 1024}), Format::kF32);
  EXPECT_EQ(format("blk.0.ffn_gate_inp.weight", {64, 8}), Format::kF32);
  EXPECT_EQ(format("rope_freqs.weight", {64}), Format::kF32);
  EXPECT_EQ(format("blk.0.attn_q.weight", {64, 1}), Format::kF32);
  EXPECT_EQ(format("blk.0.attn_q.weight", {}), Format::kF32);
  EXPECT_EQ(format("blk.0.attn_q.weight", {64, 64}), Format::kQ4_0);
  EXPECT_EQ(format("blk.0.ffn_up_exps.weight", {64, 32, 8}), Format::kQ4_0);
}

TEST(Recipe, FitsRows) {
  EXPECT_EQ(fit_row(Format::kQ4_K, 512), Format::kQ4_K);
  EXPECT_EQ(fit_row(Format::kQ2_K, 896), Format::kQ4_0);
  EXPECT_EQ(fit_row(Format::kQ3_K, 896), Format::kQ4_0);
  EXPECT_EQ(fit_row(Format::kQ4_K, 896), Format::kQ5_0);
  EXPECT_EQ(fit_row(Format::kQ5_K, 896), Format::kQ5_1);
  EXPECT_EQ(fit_row(Format::kQ6_K, 896), Format::kQ8_0);
  for (const FormatInfo& format : all_formats()) {
    if (!format.decodable) continue;
    for (const int64_t row : {1, 7, 31, 33, 255, 257}) {
      const Format fitted = fit_row(format.format(), row);
      EXPECT_EQ(fitted, format.block_values > 1 ? Format::kF16 : format.format()) << format.name;
    }
  }
}

TEST(Recipe, Names) {
  EXPECT_EQ(find_recipe("q4_k_m"), find_recipe("Q4_K_M"));
  EXPECT_EQ(find_recipe("Q4_K"), nullptr);
  EXPECT_EQ(find_recipe(""), nullptr);
  std::set<uint32_t> file_types;
  for (const Recipe& r : all_recipes())
    EXPECT_TRUE(file_types.insert(r.file_type).second) << r.name;
  EXPECT_TRUE(recipe_names().starts_with("F32, F16, BF16, Q8_0"));
}

}  // namespace
}  // namespace lockstep::quant
