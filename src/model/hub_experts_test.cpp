// Folders with experts, and with eight-bit weights.
#include <cmath>

#include "hub/test_folder.h"
#include "model/model.h"

namespace lockstep::hub {
namespace {

class HubExperts : public HubFolder {
 protected:
  static constexpr int64_t kExperts = 11;  // names are not in the order of their numbers

  // Takes the feed-forward blocks out.
  void become(const std::string& type) {
    config_["model_type"] = type;
    config_["num_experts_per_tok"] = 3;
    for (int layer = 0; layer < 2; ++layer)
      for (const char* name : {"gate", "up", "down"})
        tensors_.erase(fmt::format("model.layers.{}.mlp.{}_proj.weight", layer, name));
  }

  void put_all(const std::string& place, const char* gate, const char* up, const char* down) {
    for (int layer = 0; layer < 2; ++layer)
      for (int64_t expert = 0; expert < kExperts; ++expert) {
        const std::string in = fmt::format("model.layers.{}.{}.{}.", layer, place, expert);
        put(in + gate + ".weight", {kHidden, kWidth});
        put(in + up + ".weight", {kHidden, kWidth});
        put(in + down + ".weight", {kWidth, kHidden});
      }
  }
  void put_layers(const std::string& name, const std::vector<int64_t>& shape) {
    for (int layer = 0; layer < 2; ++layer)
      put(fmt::format("model.layers.{}.{}", layer, name), shape);
  }

  // The folder runs, and each expert's numbers are where they belong.
  void expect_stacked(const std::string& gguf_name, const std::string& before,
                      const std::string& after) {
    const auto file = opened();
    ASSERT_TRUE(file.ok()) << file.error().message;
    const gguf::Tensor& tensor = *file->tensor("blk.1." + gguf_name);
    const int64_t size = kWidth * kHidden;
    ASSERT_EQ(tensor.values(), kExperts * size);
    ASSERT_EQ(tensor.dims.size(), 3U);
    EXPECT_EQ(tensor.dims[2], kExperts);
    for (int64_t expert = 0; expert < kExperts; ++expert)
      for (int64_t i = 0; i < size; ++i)
        ASSERT_EQ(value(*file, tensor.name, expert * size + i),
                  number(fmt::format("model.layers.1.{}{}{}", before, expert, after), i));
  }
  void expect_runs() {
    auto file = opened();
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto model = model::Model::load(*std::move(file));
    EXPECT_TRUE(model.ok()) << model.error().message;
  }
};

TEST_F(HubExperts, OfMixtralStandInOneTensor) {
  become("mixtral");
  config_["num_local_experts"] = kExperts;
  put_all("block_sparse_moe.experts", "w1", "w3", "w2");
  put_layers("block_sparse_moe.gate.weight", {kExperts, kWidth});
  expect_runs();
  expect_stacked("ffn_gate_exps.weight", "block_sparse_moe.experts.", ".w1.weight");
  expect_stacked("ffn_up_exps.weight", "block_sparse_moe.experts.", ".w3.weight");
  expect_stacked("ffn_down_exps.weight", "block_sparse_moe.experts.", ".w2.weight");
  store_as(DType::kBF16);
  expect_stacked("ffn_up_exps.weight", "block_sparse_moe.experts.", ".w3.weight");
  const auto file = opened();
  EXPECT_EQ(file->tensor("blk.0.ffn_up_exps.weight")->format->name, "BF16");
  EXPECT_EQ(file->tensor("blk.0.ffn_gate_inp.weight")->format->name, "F32");
  EXPECT_EQ(file->integer("llama.expert_count").value(), kExperts);
  EXPECT_EQ(file->integer("llama.expert_used_count").value(), 3);
}

TEST_F(HubExperts, OfQwenHaveASharedOneAndSayHowTheyAreWeighed) {
  become("qwen2_moe");
  config_["num_experts"] = kExperts;
  config_["moe_intermediate_size"] = kHidden;
  config_["shared_expert_intermediate_size"] = 5;
  put_all("mlp.experts", "gate_proj", "up_proj", "down_proj");
  put_layers("mlp.gate.weight", {kExperts, kWidth});
  put_layers("mlp.shared_expert.gate_proj.weight", {5, kWidth});
  put_layers("mlp.shared_expert.up_proj.weight", {5, kWidth});
  put_layers("mlp.shared_expert.down_proj.weight", {kWidth, 5});
  put_layers("mlp.shared_expert_gate.weight", {1, kWidth});
  for (int layer = 0; layer < 2; ++layer)
    for (const char* name : {"k", "v"})
      put(fmt::format("model.layers.{}.self_attn.{}_proj.bias", layer, name),
          {kKvHeads * kHeadSize});
  expect_runs();
  expect_stacked("ffn_down_exps.weight", "mlp.experts.", ".down_proj.weight");
  EXPECT_EQ(opened()->tensor("blk.0.ffn_gate_inp_shexp.weight")->dims,
            (std::vector<int64_t>{kWidth}));
  EXPECT_EQ(opened()->find("qwen2moe.expert_weights_norm"), nullptr);
  config_["norm_topk_prob"] = true;
  EXPECT_TRUE(opened()->boolean("qwen2moe.expert_weights_norm").value());
  config_["decoder_sparse_step"] = 2;
  EXPECT_EQ(problem(), at("decoder_sparse_step: found 2, expected 1, nothing else is supported"));
  config_["decoder_sparse_step"] = 1;
  config_["mlp_only_layers"] = {1};
  EXPECT_EQ(problem(),
            at("mlp_only_layers: found an array of 1, expected [], nothing else is supported"));
}

// Gate and up of all experts in one tensor, row under row.
TEST_F(HubExperts, MayStandInOneTensorOnTheHubToo) {
  const auto expect_halves = [&](const std::string& both) {
    const auto file = opened();
    ASSERT_TRUE(file.ok()) << file.error().message;
    const int64_t size = kHidden * kWidth;
    for (const auto& [name, half] : {std::pair("ffn_gate_exps", 0), std::pair("ffn_up_exps", 1)})
      for (int64_t expert = 0; expert < kExperts; ++expert)
        for (int64_t i = 0; i < size; ++i)
          ASSERT_EQ(value(*file, fmt::format("blk.1.{}.weight", name), expert * size + i),
                    number("model.layers.1." + both, (2 * expert + half) * size + i));
  };
  become("granitemoe");
  config_["num_local_experts"] = kExperts;
  put_layers("block_sparse_moe.input_linear.weight", {kExperts, 2 * kHidden, kWidth});
  put_layers("block_sparse_moe.output_linear.weight", {kExperts, kWidth, kHidden});
  put_layers("block_sparse_moe.router.layer.weight", {kExperts, kWidth});
  expect_runs();
  expect_halves("block_sparse_moe.input_linear.weight");
  for (const char* name : {"input_linear", "output_linear", "router.layer"})
    for (int layer = 0; layer < 2; ++layer)
      tensors_.erase(fmt::format("model.layers.{}.block_sparse_moe.{}.weight", layer, name));
  config_["model_type"] = "mixtral";
  put_layers("mlp.experts.gate_up_proj", {kExperts, 2 * kHidden, kWidth});
  put_layers("mlp.experts.down_proj", {kExperts, kWidth, kHidden});
  put_layers("mlp.gate.weight", {kExperts, kWidth});
  expect_runs();
  expect_halves("mlp.experts.gate_up_proj");
  put("model.layers.0.mlp.experts.gate_up_proj", {kExperts, 2 * kHidden + 1, kWidth});
  EXPECT_EQ(problem(), path_.string() +
                           ": tensor 'model.layers.0.mlp.experts.gate_up_proj': found shape [11, "
                           "15, 14], expected an even number of rows: two matrices in one");
}

TEST_F(HubExperts, ThatAreMissingOrUnlikeAreNamed) {
  become("mixtral");
  config_["num_local_experts"] = kExperts;
  put_all("block_sparse_moe.experts", "w1", "w3", "w2");
  put_layers("block_sparse_moe.gate.weight", {kExperts, kWidth});
  const std::string name = "model.layers.1.block_sparse_moe.experts.4.w3.weight";
  const Stored kept = tensors_.at(name);
  tensors_.erase(name);
  EXPECT_NE(problem().find("found 10 experts, the last of number 10, expected matrices of the same "
                           "size and type for experts from 0 on"),
            std::string::npos)
      << problem();
  put(name, {kHidden, kWidth - 1});
  EXPECT_NE(problem().find("found 11 experts"), std::string::npos) << problem();
  tensors_[name] = kept;
  tensors_.erase("model.layers.1.block_sparse_moe.experts.10.w3.weight");
  auto file = opened();
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(model::Model::load(*std::move(file)).ok());  // ten of eleven
}

// All 256 numbers, by the definition of the format.
TEST_F(HubExperts, EightBitWeightsAreScaledByBlocks) {
  config_["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {4, 5}}};
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  Stored& stored = tensors_.at(name);  // [7, 14]
  for (size_t i = 0; i < stored.bits.size(); ++i)
    stored.bits[i] = static_cast<uint32_t>((5 * i + 1) % 256);
  for (uint32_t& bits : stored.bits)
    if ((bits & 0x7fU) == 0x7fU) bits = 0;
  eight_bits_.insert(name);
  EXPECT_EQ(problem(), path_.string() + ": tensor '" + name + "': found no '" + name +
                           "_scale_inv', expected one for numbers of type F8_E4M3");
  put(name + "_scale_inv", {2, 3});
  const auto file = opened();
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensor("blk.0.ffn_up.weight")->format->name, "F32");
  for (int64_t row = 0; row < kHidden; ++row)
    for (int64_t column = 0; column < kWidth; ++column) {
      const auto bits = stored.bits[static_cast<size_t>(row * kWidth + column)];
      const int exponent = static_cast<int>(bits >> 3U & 15U);
      const double fraction = static_cast<double>(bits & 7U) / 8;
      const double size = exponent == 0 ? std::pow(2.0, -6) * fraction
                                        : std::pow(2.0, exponent - 7) * (1 + fraction);
      const double scale = number(name + "_scale_inv", row / 4 * 3 + column / 5);
      const auto expected =
          static_cast<float>((bits & 0x80U) != 0 ? -size : size) * static_cast<float>(scale);
      EXPECT_EQ(value(*file, "blk.0.ffn_up.weight", row * kWidth + column),
                static_cast<double>(expected))
          << bits;
    }
  put(name + "_scale_inv", {3, 3});
  EXPECT_EQ(problem(), path_.string() + ": tensor '" + name +
                           "': found scales of shape [3, 3] and type F32, expected a float for "
                           "each block of 4 by 5 numbers of shape [7, 14]");
  config_.erase("quantization_config");
  EXPECT_NE(problem().find("expected weight_block_size in the quantization_config of config.json"),
            std::string::npos)
      << problem();
  config_["quantization_config"] = {{"quant_method", "gptq"}};
  EXPECT_EQ(problem(), at("quantization_config.quant_method: found \"gptq\", expected \"fp8\" with "
                          "weight_block_size, \"mxfp4\", or no quantization_config: other "
                          "quantized weights are not supported"));
  config_["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {4}}};
  EXPECT_EQ(problem(),
            at("quantization_config.weight_block_size: found an array of 1, expected two "
               "whole numbers"));
}

}  // namespace
}  // namespace lockstep::hub
