#include "hub/config.h"
#include "hub/test_folder.h"

namespace lockstep::hub {
namespace {

TEST_F(HubFolder, HasTheMetadataOfAGgufFile) {
  const auto file = opened();
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->text("general.architecture").value(), "llama");
  EXPECT_EQ(file->text("tokenizer.ggml.model").value(), "none");
  EXPECT_EQ(file->integer("llama.block_count").value(), 2);
  EXPECT_EQ(file->integer("llama.attention.head_count_kv").value(), kKvHeads);
  EXPECT_EQ(file->integer("llama.attention.key_length").value(), kHeadSize);
  EXPECT_EQ(file->integer("llama.rope.dimension_count").value(), kHeadSize);
  EXPECT_EQ(file->real("llama.rope.freq_base").value(), 12345.0);
  EXPECT_EQ(file->find("llama.attention.sliding_window"), nullptr);
  EXPECT_EQ(file->version(), 0U);
  EXPECT_EQ(file->parts().size(), 2U);
  std::ofstream(path_ / "tokenizer_config.json") << "{}";
  EXPECT_EQ(open(path_.string())->parts().size(), 3U);
  EXPECT_TRUE(file->is_mapped());
}

TEST_F(HubFolder, PairsTheRowsOfQueriesAndKeys) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (dtype != DType::kF32) {
      for (auto& [name, stored] : tensors_) put(name, stored.shape);
      store_as(dtype);
    }
    const auto file = opened();
    ASSERT_TRUE(file.ok()) << file.error().message;
    const std::string in = "model.layers.1.self_attn.";
    for (int64_t row = 0; row < kHeads * kHeadSize; ++row) {
      // Row 2i + half of a head is row i + half * 3.
      const int64_t inner = row % kHeadSize;
      const int64_t source = row - inner + inner / 2 + inner % 2 * (kHeadSize / 2);
      EXPECT_EQ(value(*file, "blk.1.attn_q.bias", row), number(in + "q_proj.bias", source));
      for (int64_t column = 0; column < kWidth; ++column)
        EXPECT_EQ(value(*file, "blk.1.attn_q.weight", row * kWidth + column),
                  number(in + "q_proj.weight", source * kWidth + column));
    }
    EXPECT_TRUE(file->tensor("blk.1.attn_q.weight")->made);
    EXPECT_EQ(file->tensor("blk.1.attn_q.bias")->format->name, "F32");
    EXPECT_EQ(file->tensor("blk.1.attn_norm.weight")->format->name, "F32");
    // What is as it should be stays in the file.
    const gguf::Tensor& v = *file->tensor("blk.1.attn_v.weight");
    EXPECT_FALSE(v.made);
    EXPECT_EQ(v.dims, (std::vector<int64_t>{kWidth, kKvHeads * kHeadSize}));
    for (int64_t i = 0; i < v.values(); ++i)
      EXPECT_EQ(value(*file, v.name, i), number(in + "v_proj.weight", i));
  }
}

TEST_F(HubFolder, InPartsIsTheSame) {
  const auto whole = opened();
  ASSERT_TRUE(whole.ok());
  std::vector<std::string> names[2];
  json index;
  int64_t count = 0;
  for (const auto& [name, stored] : tensors_) {
    names[count % 2].push_back(name);
    index["weight_map"][name] = fmt::format("model-{}.safetensors", count++ % 2);
  }
  fs::rename(path_ / "model.safetensors", path_ / "whole.safetensors");
  for (const size_t part : {size_t{0}, size_t{1}})
    write_file(fmt::format("model-{}.safetensors", part), names[part]);
  const auto check = [&] {
    const auto parts = open(path_.string());
    ASSERT_TRUE(parts.ok()) << parts.error().message;
    ASSERT_EQ(parts->tensors().size(), whole->tensors().size());
    for (size_t i = 0; i < parts->tensors().size(); ++i) {
      EXPECT_EQ(parts->tensors()[i].name, whole->tensors()[i].name);
      EXPECT_TRUE(std::ranges::equal(parts->tensors()[i].data, whole->tensors()[i].data));
    }
  };
  check();  // without an index
  const auto write_index = [&] {
    std::ofstream(path_ / "model.safetensors.index.json") << index.dump();
  };
  write_index();
  check();
  const std::string path = (path_ / "model.safetensors.index.json").string();
  index["weight_map"]["model.lost.weight"] = "model-1.safetensors";
  write_index();
  EXPECT_EQ(open(path_.string()).error().message,
            path +
                ": weight_map: found tensor 'model.lost.weight' in no file, expected it in "
                "model-1.safetensors");
  index["weight_map"]["model.lost.weight"] = "model-2.safetensors";
  write_index();
  EXPECT_EQ(open(path_.string()).error().message,
            path +
                ": weight_map: found the name model-2.safetensors, expected the file in the same "
                "folder");
  index["weight_map"]["model.lost.weight"] = "../model-1.safetensors";
  write_index();
  EXPECT_EQ(open(path_.string()).error().message,
            path +
                ": weight_map.model.lost.weight: found \"../model-1.safetensors\", expected the "
                "name of a .safetensors file in the same folder");
}

TEST_F(HubFolder, TiedHasNoOutput) {
  config_["tie_word_embeddings"] = true;
  EXPECT_EQ(opened().value().tensor("output.weight"), nullptr);
  config_["tie_word_embeddings"] = false;
  tensors_.erase("lm_head.weight");
  EXPECT_EQ(problem(), path_.string() +
                           ": found no tensor 'lm_head.weight', expected one where "
                           "tie_word_embeddings is false");
}

// Transformers gives these no window, and config.json of a model that was made of another may still
// name one.
TEST_F(HubFolder, AWindowIsOfModelsThatHaveOne) {
  config_["sliding_window"] = 4;
  const auto window = [&](const char* type) {
    config_["model_type"] = type;
    const auto file = opened();
    EXPECT_TRUE(file.ok()) << file.error().message;
    const auto* found = file->find("llama.attention.sliding_window");
    return found != nullptr ? std::get<uint32_t>(found->value) : 0;
  };
  EXPECT_EQ(window("mistral"), 4U);
  EXPECT_EQ(window("llama"), 0U);
}

// Transformers caps the scores of a gemma2, and looks at the key in no gemma3.
TEST_F(HubFolder, ACapIsOfModelsThatHaveOne) {
  config_["attn_logit_softcapping"] = 30;
  config_["query_pre_attn_scalar"] = kHeadSize;
  for (const auto& [type, capped] : {std::pair("gemma2", true), std::pair("gemma3_text", false)}) {
    config_["model_type"] = type;
    const auto config = read_config(config_.dump(), "config.json");
    ASSERT_TRUE(config.ok()) << config.error().message;
    const bool found = std::ranges::any_of(config->metadata, [](const gguf::Entry& entry) {
      return entry.key.ends_with("attn_logit_softcapping");
    });
    EXPECT_EQ(found, capped) << type;
  }
}

// Transformers looks at the key alone, GGUF files have the norm alone.
TEST_F(HubFolder, ALayerIsParallelByItsKeyAndItsNorms) {
  config_["model_type"] = "stablelm";
  EXPECT_EQ(problem(), "none");
  config_["use_parallel_residual"] = true;
  EXPECT_EQ(problem(), path_.string() +
                           ": found a tensor 'model.layers.0.post_attention_layernorm.weight', "
                           "expected none where use_parallel_residual is true");
  tensors_.erase("model.layers.0.post_attention_layernorm.weight");
  tensors_.erase("model.layers.1.post_attention_layernorm.weight");
  EXPECT_EQ(problem(), "none");
  config_.erase("use_parallel_residual");
  EXPECT_EQ(problem(), path_.string() +
                           ": found no tensor 'model.layers.0.post_attention_layernorm.weight', "
                           "expected one where use_parallel_residual is false");
}

TEST_F(HubFolder, WhatIsNotSupportedIsNamed) {
  const json good = config_;
  const auto with = [&](const std::string& key, json value) {
    config_ = good;
    config_[key] = std::move(value);
    return problem();
  };
  EXPECT_TRUE(with("model_type", "bert")
                  .starts_with(at("model_type: found \"bert\", expected one of gpt2, llama, ")));
  EXPECT_EQ(
      with("hidden_act", "relu"),
      at("hidden_act: found \"relu\", expected \"silu\" or \"swish\", nothing else is supported"));
  EXPECT_EQ(with("use_bias", false), "none");  // which llama does not know
  config_["model_type"] = "starcoder2";
  config_["hidden_act"] = "gelu_pytorch_tanh";
  EXPECT_EQ(problem(), at("use_bias: found false, expected true, nothing else is supported"));
  EXPECT_EQ(
      with("quantization_config", json::object()),
      at("quantization_config.quant_method: found nothing, expected \"fp8\" with "
         "weight_block_size, \"mxfp4\", or no quantization_config: other quantized weights are not "
         "supported"));
  EXPECT_EQ(with("rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}),
            at("rope_scaling.rope_type: found \"dynamic\", expected default, linear, yarn, llama3 "
               "or longrope"));
  EXPECT_EQ(with("rope_scaling", {{"type", "linear"}, {"factor", -2.0}}),
            at("rope_scaling.factor: found -2.0, expected more than 0"));
  EXPECT_EQ(
      with("rope_parameters", {{"rope_type", "yarn"}, {"factor", 2.0}, {"truncate", false}}),
      at("rope_parameters.truncate: found false, expected true: GGUF files have no key for it"));
  EXPECT_EQ(with("partial_rotary_factor", 0.5),
            at("partial_rotary_factor: found 0.5, expected 1 in this architecture"));
  EXPECT_EQ(with("num_hidden_layers", 1e300),
            at("num_hidden_layers: found 1e+300, expected a whole number from 1 to 65536"));
  EXPECT_EQ(with("num_attention_heads", 0),
            at("num_attention_heads: found 0, expected a whole number from 1 to 1073741824"));
  EXPECT_EQ(with("num_attention_heads", 5),
            path_.string() +
                ": tensor 'model.layers.0.self_attn.q_proj.bias': found 18 rows, "
                "expected an even number for each of 5 heads");
  EXPECT_EQ(with("vocab_size", 10),
            at("vocab_size: found 10, expected 9, the rows of the embedding table"));
  EXPECT_EQ(with("sliding_window", 5), "none");
  EXPECT_EQ(with("layer_types", json::array({"full_attention"})), "none");  // without a window
  config_["model_type"] = "mistral";
  config_["sliding_window"] = 5;
  config_["layer_types"] = {"full_attention"};
  EXPECT_EQ(problem(),
            at("layer_types: found an array of 1, expected a type for each of 2 layers"));
  config_["layer_types"] = {"sliding_attention", "linear_attention"};
  EXPECT_EQ(problem(), at("layer_types[1]: found \"linear_attention\", expected "
                          "\"sliding_attention\" or \"full_attention\""));
  config_["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(opened().value().flags("llama.attention.sliding_window_pattern").value(),
            (std::vector<int64_t>{0, 1}));
}

TEST_F(HubFolder, TensorsWithoutAPlaceAreNamed) {
  put("model.layers.0.self_attn.rotary_emb.inv_freq", {3});
  EXPECT_EQ(problem(), "none");
  put("model.layers.0.mlp.experts.0.weight", {3});
  EXPECT_EQ(problem(), path_.string() +
                           ": tensor 'model.layers.0.mlp.experts.0.weight' has no "
                           "place in a model of type llama");
  tensors_.erase("model.layers.0.mlp.experts.0.weight");
  put("embed_tokens.weight", {kVocabulary, kWidth});
  EXPECT_EQ(problem(), path_.string() +
                           ": tensors 'embed_tokens.weight' and "
                           "'model.embed_tokens.weight' are the same one, "
                           "token_embd.weight");
  tensors_.erase("embed_tokens.weight");
  tensors_["model.norm.weight"].dtype = DType::kF64;
  tensors_["model.norm.weight"].shape = {0};
  tensors_["model.norm.weight"].bits.clear();
  EXPECT_EQ(problem(), path_.string() +
                           ": tensor 'model.norm.weight': found numbers of type F64, "
                           "expected F32, F16, BF16 or F8_E4M3");
  tensors_["model.norm.weight"].dtype = DType::kF32;
  EXPECT_EQ(problem(), path_.string() +
                           ": tensor 'model.norm.weight': found shape [0], expected "
                           "numbers");
}

TEST_F(HubFolder, WithoutWeightsSaysWhatItHas) {
  write_config();
  const std::string expected =
      ", expected model.safetensors or model.safetensors.index.json with the files that it names";
  EXPECT_EQ(open(path_.string()).error().message, path_.string() + ": found no weights" + expected);
  std::ofstream(path_ / "pytorch_model.bin") << "x";
  EXPECT_EQ(open(path_.string()).error().message,
            path_.string() + ": found pytorch_model.bin alone" + expected);
}

TEST_F(HubFolder, PointersOfGitAreNamed) {
  write_config();
  std::ofstream(path_ / "model.safetensors")
      << "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n";
  EXPECT_EQ(open(path_.string()).error().message,
            (path_ / "model.safetensors").string() +
                ": found a pointer of Git LFS, expected the tensors themselves: 'git lfs pull' "
                "brings them");
}

TEST_F(HubFolder, ReadIntoMemoryIsTheSame) {
  const auto mapped = opened();
  const auto own = open(path_.string(), false);
  ASSERT_TRUE(mapped.ok() && own.ok());
  EXPECT_FALSE(own->is_mapped());
  for (const gguf::Tensor& tensor : mapped->tensors())
    EXPECT_TRUE(std::ranges::equal(tensor.data, own->tensor(tensor.name)->data)) << tensor.name;
}

}  // namespace
}  // namespace lockstep::hub
