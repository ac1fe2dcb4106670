// Test-only: a folder of the hub that a test can spoil before it is written.
#pragma once

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/dtype.h"
#include "base/random.h"
#include "base/temporary_folder.h"
#include "hub/folder.h"
#include "quant/decode.h"
#include "trace/safetensors.h"

namespace lockstep::hub {

namespace fs = std::filesystem;
using nlohmann::json;

struct Stored {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<uint32_t> bits;  // of each number; of two bytes the lower half counts
};

class HubFolder : public testing::Test {
 protected:
  static constexpr int64_t kHeads = 3, kKvHeads = 1, kHeadSize = 6, kWidth = 14, kHidden = 7,
                           kVocabulary = 9;

  HubFolder() {
    config_ = {{"model_type", "llama"},         {"hidden_size", kWidth},
               {"num_hidden_layers", 2},        {"intermediate_size", kHidden},
               {"num_attention_heads", kHeads}, {"num_key_value_heads", kKvHeads},
               {"head_dim", kHeadSize},         {"max_position_embeddings", 77},
               {"rms_norm_eps", 1e-5},          {"rope_theta", 12345.0},
               {"vocab_size", kVocabulary},     {"tie_word_embeddings", false}};
    put("model.embed_tokens.weight", {kVocabulary, kWidth});
    put("model.norm.weight", {kWidth});
    put("lm_head.weight", {kVocabulary, kWidth});
    for (int layer = 0; layer < 2; ++layer) {
      const std::string in = fmt::format("model.layers.{}.", layer);
      put(in + "input_layernorm.weight", {kWidth});
      put(in + "post_attention_layernorm.weight", {kWidth});
      put(in + "self_attn.q_proj.weight", {kHeads * kHeadSize, kWidth});
      put(in + "self_attn.q_proj.bias", {kHeads * kHeadSize});
      put(in + "self_attn.k_proj.weight", {kKvHeads * kHeadSize, kWidth});
      put(in + "self_attn.v_proj.weight", {kKvHeads * kHeadSize, kWidth});
      put(in + "self_attn.o_proj.weight", {kWidth, kHeads * kHeadSize});
      put(in + "mlp.gate_proj.weight", {kHidden, kWidth});
      put(in + "mlp.up_proj.weight", {kHidden, kWidth});
      put(in + "mlp.down_proj.weight", {kWidth, kHidden});
    }
  }

  void put(const std::string& name, std::vector<int64_t> shape) {
    Stored stored{DType::kF32, std::move(shape), {}};
    int64_t values = 1;
    for (const int64_t extent : stored.shape) values *= extent;
    for (int64_t i = 0; i < values; ++i) {
      const auto number = static_cast<float>(random_.uniform() * 4 - 2);
      stored.bits.push_back(std::bit_cast<uint32_t>(number));
    }
    tensors_[name] = std::move(stored);
  }

  // The same numbers, cut to two bytes.
  void store_as(DType dtype) {
    for (auto& [name, stored] : tensors_)
      for (uint32_t& bits : stored.bits) {
        bits = dtype == DType::kBF16 ? bits >> 16U : float_to_half(std::bit_cast<float>(bits));
        stored.dtype = dtype;
      }
  }

  void write_file(const std::string& file, const std::vector<std::string>& names) const {
    json header = json::object();
    std::string data;
    for (const std::string& name : names) {
      const Stored& stored = tensors_.at(name);
      const bool eight = eight_bits_.contains(name), byte = bytes_.contains(name);
      const auto width = eight || byte ? size_t{1} : static_cast<size_t>(size_bytes(stored.dtype));
      const size_t first = data.size();
      for (const uint32_t bits : stored.bits)
        data.append(reinterpret_cast<const char*>(&bits), width);
      header[name] = {{"dtype", eight  ? "F8_E4M3"
                                : byte ? "U8"
                                       : trace::stored_name(stored.dtype)},
                      {"shape", stored.shape},
                      {"data_offsets", {first, data.size()}}};
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    std::ofstream(path_ / file, std::ios::binary)
        << std::string(reinterpret_cast<const char*>(&length), sizeof length) << text << data;
  }
  void write_config() const { std::ofstream(path_ / "config.json") << config_.dump(); }

  Result<gguf::File> opened() const {
    write_config();
    std::vector<std::string> names;
    for (const auto& [name, stored] : tensors_) names.push_back(name);
    write_file("model.safetensors", names);
    return open(path_.string());
  }
  std::string problem() const {
    const auto file = opened();
    return file.ok() ? "none" : file.error().message;
  }
  std::string at(const std::string& rest) const {
    return (path_ / "config.json").string() + ": " + rest;
  }

  double number(const std::string& name, int64_t index) const {
    const Stored& stored = tensors_.at(name);
    return load_number(stored.dtype, &stored.bits[static_cast<size_t>(index)]);
  }
  static double value(const gguf::File& file, const std::string& name, int64_t index) {
    const gguf::Tensor& tensor = *file.tensor(name);
    std::vector<float> all(static_cast<size_t>(tensor.values()));
    quant::decode(tensor.format->format(), tensor.data.data(), tensor.values(), all.data());
    return static_cast<double>(all[static_cast<size_t>(index)]);
  }

  Random random_{20261};
  json config_;
  std::map<std::string, Stored> tensors_;
  std::set<std::string> eight_bits_;  // tensors whose bits are eight-bit floats
  std::set<std::string> bytes_;       // or plain bytes
  const TemporaryFolder temporary_ = TemporaryFolder::create().value();
  const fs::path path_ = temporary_.path();
};

}  // namespace lockstep::hub
