// Folders of gpt-oss and DeepSeek: weights in other orders, experts in four bits. Folders of
// StableLM: norms of single heads.
#include <cmath>

#include "hub/test_folder.h"
#include "model/model.h"

namespace lockstep::hub {
namespace {

class HubOrders : public HubFolder {
 protected:
  static constexpr int64_t kExperts = 5;

  void put_layers(const std::string& name, const std::vector<int64_t>& shape) {
    for (int layer = 0; layer < 2; ++layer)
      put(fmt::format("model.layers.{}.{}", layer, name), shape);
  }
  void erase_layers(const std::string& name) {
    for (int layer = 0; layer < 2; ++layer)
      tensors_.erase(fmt::format("model.layers.{}.{}", layer, name));
  }
  void expect_runs() {
    auto file = opened();
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto model = model::Model::load(*std::move(file));
    EXPECT_TRUE(model.ok()) << model.error().message;
  }
  std::string of_tensor(const std::string& name, const std::string& rest) const {
    return path_.string() + ": tensor '" + name + "': " + rest;
  }
};

// The norms of heads have no bias, also where a row is a single head.
TEST_F(HubOrders, NormsOfHeadsHaveNoBias) {
  constexpr int64_t kSize = 4;
  config_["model_type"] = "stablelm";
  config_.erase("head_dim");
  config_["layer_norm_eps"] = 1e-5;
  config_["partial_rotary_factor"] = 0.5;
  for (const int64_t heads : {1, 3}) {
    const int64_t width = heads * kSize;
    config_["num_attention_heads"] = heads;
    config_["hidden_size"] = width;
    tensors_.clear();
    put("model.embed_tokens.weight", {kVocabulary, width});
    put("lm_head.weight", {kVocabulary, width});
    for (const char* part : {"weight", "bias"}) {
      put(fmt::format("model.norm.{}", part), {width});
      put_layers(fmt::format("input_layernorm.{}", part), {width});
      put_layers(fmt::format("post_attention_layernorm.{}", part), {width});
    }
    const std::vector<std::pair<const char*, int64_t>> projections = {
        {"q", heads}, {"k", kKvHeads}, {"v", kKvHeads}};
    for (const auto& [name, count] : projections)
      put_layers(fmt::format("self_attn.{}_proj.weight", name), {count * kSize, width});
    put_layers("self_attn.o_proj.weight", {width, width});
    put_layers("mlp.gate_proj.weight", {kHidden, width});
    put_layers("mlp.up_proj.weight", {kHidden, width});
    put_layers("mlp.down_proj.weight", {width, kHidden});
    expect_runs();
    for (int64_t head = 0; head < heads; ++head)
      put_layers(fmt::format("self_attn.q_layernorm.norms.{}.weight", head), {kSize});
    put_layers("self_attn.k_layernorm.norms.0.weight", {kSize});
    expect_runs();
  }
}

class HubGptOss : public HubOrders {
 protected:
  static constexpr int64_t kWide = 64, kInner = 32;  // rows of whole blocks

  HubGptOss() {
    tensors_.clear();
    config_["model_type"] = "gpt_oss";
    config_["hidden_size"] = kWide;
    config_["intermediate_size"] = kInner;
    config_["num_local_experts"] = kExperts;
    config_["num_experts_per_tok"] = 2;
    config_["sliding_window"] = 9;
    config_["rope_scaling"] = {{"rope_type", "default"}};
    put("model.embed_tokens.weight", {kVocabulary, kWide});
    put("model.norm.weight", {kWide});
    put("lm_head.weight", {kVocabulary, kWide});
    const std::vector<std::pair<std::string, int64_t>> heads = {
        {"q", kHeads}, {"k", kKvHeads}, {"v", kKvHeads}};
    for (const auto& [name, count] : heads) {
      put_layers("self_attn." + name + "_proj.weight", {count * kHeadSize, kWide});
      put_layers("self_attn." + name + "_proj.bias", {count * kHeadSize});
    }
    put_layers("self_attn.o_proj.weight", {kWide, kHeads * kHeadSize});
    put_layers("self_attn.o_proj.bias", {kWide});
    put_layers("self_attn.sinks", {kHeads});
    put_layers("input_layernorm.weight", {kWide});
    put_layers("post_attention_layernorm.weight", {kWide});
    put_layers("mlp.router.weight", {kExperts, kWide});
    put_layers("mlp.router.bias", {kExperts});
    put_layers("mlp.experts.gate_up_proj", {kExperts, kWide, 2 * kInner});
    put_layers("mlp.experts.gate_up_proj_bias", {kExperts, 2 * kInner});
    put_layers("mlp.experts.down_proj", {kExperts, kInner, kWide});
    put_layers("mlp.experts.down_proj_bias", {kExperts, kWide});
  }

  void put_bytes(const std::string& name, std::vector<int64_t> shape) {
    put(name, std::move(shape));
    const uint64_t most = name.ends_with("_scales") ? 250 : 256;  // what floats can hold
    for (uint32_t& bits : tensors_.at(name).bits)
      bits = static_cast<uint32_t>(random_.next() % most);
    bytes_.insert(name);
  }
  void pack() {
    erase_layers("mlp.experts.gate_up_proj");
    erase_layers("mlp.experts.down_proj");
    for (int layer = 0; layer < 2; ++layer) {
      const std::string in = fmt::format("model.layers.{}.mlp.experts.", layer);
      put_bytes(in + "gate_up_proj_blocks", {kExperts, 2 * kInner, kWide / 32, 16});
      put_bytes(in + "gate_up_proj_scales", {kExperts, 2 * kInner, kWide / 32});
      put_bytes(in + "down_proj_blocks", {kExperts, kWide, kInner / 32, 16});
      put_bytes(in + "down_proj_scales", {kExperts, kWide, kInner / 32});
    }
    config_["quantization_config"] = {{"quant_method", "mxfp4"}};
  }
  // Number `column` of a row of blocks: two a byte, the lower bits first.
  double packed_number(const std::string& stem, int64_t row, int64_t column,
                       int64_t columns) const {
    const int64_t block = row * columns / 32 + column / 32;
    const auto& codes = tensors_.at(stem + "_blocks").bits;
    const auto byte = codes[static_cast<size_t>(block * 16 + column % 32 / 2)];
    const uint32_t code = column % 2 == 0 ? byte & 15U : byte >> 4U;
    constexpr double kSizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const double size = kSizes[code & 7U];
    const auto exponent =
        static_cast<int>(tensors_.at(stem + "_scales").bits[static_cast<size_t>(block)]) - 127;
    return std::ldexp((code & 8U) != 0 ? -size : size, exponent);
  }
};

TEST_F(HubGptOss, GateAndUpTakeTurns) {
  expect_runs();
  const auto file = opened();
  const std::string in = "model.layers.1.mlp.experts.";
  for (int64_t expert = 0; expert < kExperts; ++expert)
    for (int64_t row = 0; row < kInner; ++row) {
      for (const auto& [name, odd] : {std::pair("gate", 0), std::pair("up", 1)}) {
        const int64_t source = 2 * row + odd;
        ASSERT_EQ(value(*file, fmt::format("blk.1.ffn_{}_exps.bias", name), expert * kInner + row),
                  number(in + "gate_up_proj_bias", expert * 2 * kInner + source));
        for (int64_t column = 0; column < kWide; column += 7)
          ASSERT_EQ(value(*file, fmt::format("blk.1.ffn_{}_exps.weight", name),
                          (expert * kInner + row) * kWide + column),
                    number(in + "gate_up_proj", (expert * kWide + column) * 2 * kInner + source));
      }
      for (int64_t column = 0; column < kWide; column += 7)
        ASSERT_EQ(
            value(*file, "blk.1.ffn_down_exps.weight", (expert * kWide + column) * kInner + row),
            number(in + "down_proj", (expert * kInner + row) * kWide + column));
    }
  EXPECT_EQ(value(*file, "blk.1.attn_sinks.weight", 2),
            number("model.layers.1.self_attn.sinks", 2));
  EXPECT_EQ(value(*file, "blk.1.post_attention_norm.weight", 3),
            number("model.layers.1.post_attention_layernorm.weight", 3));
  store_as(DType::kBF16);
  EXPECT_EQ(opened()->tensor("blk.0.ffn_up_exps.weight")->format->name, "BF16");
  EXPECT_EQ(opened()->tensor("blk.0.ffn_up_exps.bias")->format->name, "F32");
}

TEST_F(HubGptOss, BlocksOfFourBitsStayExact) {
  pack();
  expect_runs();
  const auto file = opened();
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensor("blk.0.ffn_gate_exps.weight")->format->name, "MXFP4");
  EXPECT_EQ(file->tensor("blk.0.ffn_gate_exps.weight")->dims,
            (std::vector<int64_t>{kWide, kInner, kExperts}));
  for (const auto& [name, rows, columns, step, first, stem] :
       {std::tuple("gate", kInner, kWide, int64_t{2}, int64_t{0}, "gate_up_proj"),
        std::tuple("up", kInner, kWide, int64_t{2}, int64_t{1}, "gate_up_proj"),
        std::tuple("down", kWide, kInner, int64_t{1}, int64_t{0}, "down_proj")}) {
    const gguf::Tensor& tensor = *file->tensor(fmt::format("blk.1.ffn_{}_exps.weight", name));
    std::vector<float> all(static_cast<size_t>(tensor.values()));
    quant::decode(tensor.format->format(), tensor.data.data(), tensor.values(), all.data());
    for (int64_t row = 0; row < kExperts * rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        ASSERT_EQ(static_cast<double>(all[static_cast<size_t>(row * columns + column)]),
                  packed_number(fmt::format("model.layers.1.mlp.experts.{}", stem),
                                step * row + first, column, columns))
            << name << " " << row << " " << column;
  }
}

TEST_F(HubGptOss, BlocksNeedTheirScales) {
  pack();
  const std::string in = "model.layers.0.mlp.experts.down_proj_";
  put_bytes(in + "scales", {kExperts, kWide + 1, 1});
  EXPECT_EQ(problem(),
            of_tensor(in + "blocks",
                      "found blocks of shape [5, 64, 1, 16] and type U8, scales of shape [5, 65, "
                      "1] and type U8, expected for each scale a block of 16 bytes, all of type "
                      "U8"));
  tensors_.erase(in + "scales");
  EXPECT_EQ(
      problem(),
      of_tensor(in + "blocks", "found no '" + in + "scales', expected the scales of these blocks"));
}

TEST_F(HubGptOss, TheRotationIsSaidAndAsFilesHaveIt) {
  json yarn = {{"rope_type", "yarn"},
               {"factor", 32.0},
               {"original_max_position_embeddings", 64},
               {"truncate", false}};
  config_["rope_scaling"] = yarn;
  expect_runs();
  EXPECT_EQ(opened()->text("gpt-oss.rope.scaling.type").value(), "yarn");
  EXPECT_EQ(opened()->integer("gpt-oss.attention.sliding_window").value(), 9);
  EXPECT_EQ(opened()->integer("gpt-oss.expert_feed_forward_length").value(), kInner);
  yarn["truncate"] = true;
  config_["rope_scaling"] = yarn;
  EXPECT_EQ(problem(), at("rope_scaling.truncate: found true, expected false: GGUF files have no "
                          "key for it"));
  config_.erase("rope_scaling");
  EXPECT_EQ(problem(), at("rope_scaling: found nothing, expected an object that says how positions "
                          "are rotated"));
  config_["rope_scaling"] = {{"rope_type", "default"}};
  config_["swiglu_limit"] = 8.0;
  EXPECT_EQ(problem(), at("swiglu_limit: found 8.0, expected 7.0 or 7, nothing else is supported"));
  config_["swiglu_limit"] = 7.0;
  put("model.layers.0.mlp.experts.gate_up_proj", {kExperts, kWide, 2 * kInner + 1});
  EXPECT_EQ(problem(), of_tensor("model.layers.0.mlp.experts.gate_up_proj",
                                 "found shape [5, 64, 65], expected an even number of columns: two "
                                 "matrices in one"));
  put("model.layers.0.mlp.experts.gate_up_proj", {kExperts, kWide, 2 * kInner});
  put("model.layers.0.mlp.experts.gate_up_proj_bias", {kExperts, 2 * kInner + 1});
  EXPECT_EQ(problem(), of_tensor("model.layers.0.mlp.experts.gate_up_proj_bias",
                                 "found shape [5, 65], expected an even number of rows: two "
                                 "matrices in one"));
}

class HubDeepseek : public HubOrders {
 protected:
  static constexpr int64_t kRow = 8, kStill = 5, kRotated = 4, kValue = 3, kQueries = 6;

  HubDeepseek() {
    become("deepseek_v3");
    config_["n_group"] = 1;
    config_["topk_group"] = 1;
  }
  void become(const std::string& type) {
    config_["model_type"] = type;
    config_.update({{"kv_lora_rank", kRow},
                    {"q_lora_rank", kQueries},
                    {"qk_nope_head_dim", kStill},
                    {"qk_rope_head_dim", kRotated},
                    {"v_head_dim", kValue},
                    {"n_routed_experts", kExperts},
                    {"num_experts_per_tok", 2},
                    {"n_shared_experts", 2},
                    {"moe_intermediate_size", kHidden},
                    {"first_k_dense_replace", 1},
                    {"routed_scaling_factor", 2.5}});
    for (const char* name : {"q_proj.weight", "q_proj.bias", "k_proj.weight", "v_proj.weight"})
      erase_layers(std::string("self_attn.") + name);
    put_layers("self_attn.q_a_proj.weight", {kQueries, kWidth});
    put_layers("self_attn.q_a_layernorm.weight", {kQueries});
    put_layers("self_attn.q_b_proj.weight", {kHeads * (kStill + kRotated), kQueries});
    put_layers("self_attn.kv_a_proj_with_mqa.weight", {kRow + kRotated, kWidth});
    put_layers("self_attn.kv_a_layernorm.weight", {kRow});
    put_layers("self_attn.kv_b_proj.weight", {kHeads * (kStill + kValue), kRow});
    put_layers("self_attn.o_proj.weight", {kWidth, kHeads * kValue});
    put_experts("model.layers.1.");
  }
  void put_experts(const std::string& in) {
    for (const char* name : {"gate", "up", "down"}) {
      tensors_.erase(fmt::format("{}mlp.{}_proj.weight", in, name));
      const bool down = name == std::string("down");
      for (int64_t expert = 0; expert < kExperts; ++expert)
        put(fmt::format("{}mlp.experts.{}.{}_proj.weight", in, expert, name),
            {down ? kWidth : kHidden, down ? kHidden : kWidth});
      put(fmt::format("{}mlp.shared_experts.{}_proj.weight", in, name),
          {down ? kWidth : 2 * kHidden, down ? 2 * kHidden : kWidth});
    }
    put(in + "mlp.gate.weight", {kExperts, kWidth});
    put(in + "mlp.gate.e_score_correction_bias", {kExperts});
  }
};

TEST_F(HubDeepseek, KeysAndValuesAreTwoWeights) {
  expect_runs();
  const auto file = opened();
  const std::string from = "model.layers.1.self_attn.kv_b_proj.weight";
  for (int64_t head = 0; head < kHeads; ++head)
    for (int64_t column = 0; column < kRow; ++column) {
      const int64_t first = head * (kStill + kValue);
      for (int64_t i = 0; i < kStill; ++i)
        ASSERT_EQ(value(*file, "blk.1.attn_k_b.weight", (head * kRow + column) * kStill + i),
                  number(from, (first + i) * kRow + column));
      for (int64_t i = 0; i < kValue; ++i)
        ASSERT_EQ(value(*file, "blk.1.attn_v_b.weight", (head * kValue + i) * kRow + column),
                  number(from, (first + kStill + i) * kRow + column));
    }
  EXPECT_EQ(value(*file, "blk.1.exp_probs_b.bias", 3),
            number("model.layers.1.mlp.gate.e_score_correction_bias", 3));
  for (const auto& [key, expected] :
       {std::pair("attention.head_count_kv", int64_t{1}),
        std::pair("attention.key_length", kRow + kRotated),
        std::pair("attention.value_length", kRow),
        std::pair("attention.key_length_mla", kStill + kRotated),
        std::pair("attention.value_length_mla", kValue),
        std::pair("rope.dimension_count", kRotated), std::pair("attention.q_lora_rank", kQueries),
        std::pair("expert_gating_func", int64_t{2}),
        std::pair("leading_dense_block_count", int64_t{1})})
    EXPECT_EQ(file->integer(fmt::format("deepseek2.{}", key)).value(), expected) << key;
  EXPECT_TRUE(file->boolean("deepseek2.expert_weights_norm").value());
  put("model.layers.0.self_attn.kv_b_proj.weight", {kHeads * (kStill + kValue) + 1, kRow});
  EXPECT_EQ(problem(), of_tensor("model.layers.0.self_attn.kv_b_proj.weight",
                                 "found shape [25, 8], expected 24 rows: 5 of keys and 3 of values "
                                 "for each of 3 heads"));
}

TEST_F(HubDeepseek, LayersThatGuessFurtherTokensAreLeftOut) {
  put_experts("model.layers.2.");
  put("model.layers.2.eh_proj.weight", {kWidth, 2 * kWidth});
  put("model.layers.2.shared_head.norm.weight", {kWidth});
  expect_runs();  // one is what transformers assumes
  config_["num_nextn_predict_layers"] = 0;
  EXPECT_NE(problem().find("tensor 'model.layers.2.eh_proj.weight' has no place"),
            std::string::npos)
      << problem();
}

TEST_F(HubDeepseek, ScoresAreSharpenedAsTheFileSays) {
  config_["rope_scaling"] = {{"type", "yarn"},
                             {"factor", 40.0},
                             {"original_max_position_embeddings", 64},
                             {"mscale", 1.0},
                             {"mscale_all_dim", 1.0}};
  const auto file = opened();
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_FLOAT_EQ(
      static_cast<float>(file->real("deepseek2.rope.scaling.yarn_log_multiplier").value()), 0.1F);
  EXPECT_EQ(file->find("deepseek2.rope.scaling.attn_factor"), nullptr);
  config_["rope_scaling"] = {{"type", "linear"}, {"factor", 40.0}, {"mscale_all_dim", 1.0}};
  EXPECT_EQ(problem(),
            at("rope_scaling.mscale_all_dim: found 1.0, expected none without yarn: GGUF "
               "files have no key for it"));
}

TEST_F(HubDeepseek, TheSecondVersionHasGroupsWhereItSaysSo) {
  become("deepseek_v2");
  tensors_.erase("model.layers.1.mlp.gate.e_score_correction_bias");
  config_["n_group"] = 5;
  config_["topk_group"] = 3;
  expect_runs();
  EXPECT_EQ(opened()->find("deepseek2.expert_group_count"), nullptr);
  EXPECT_EQ(opened()->find("deepseek2.expert_gating_func"), nullptr);
  config_["topk_method"] = "group_limited_greedy";
  EXPECT_EQ(opened()->integer("deepseek2.expert_group_count").value(), 5);
  EXPECT_EQ(opened()->integer("deepseek2.expert_group_used_count").value(), 3);
  config_["topk_method"] = "noaux_tc";
  EXPECT_EQ(problem(), at("topk_method: found \"noaux_tc\", expected \"greedy\" or "
                          "\"group_limited_greedy\", nothing else is supported"));
  config_["topk_method"] = "greedy";
  config_["norm_topk_prob"] = true;
  EXPECT_EQ(problem(), at("norm_topk_prob: found true, expected false, nothing else is supported"));
}

}  // namespace
}  // namespace lockstep::hub
