#include "model/model.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "gguf/writer.h"
#include "model/forward.h"
#include "op/rope.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace lockstep::model {
namespace {

using gguf::Entry;
using gguf::TensorPlan;

// Answers every question for a weight with yes, and notes it.
class NotedWeights : public Weights {
 public:
  explicit NotedWeights(bool biases) : biases_(biases) {}
  bool has(const std::string& name) const override {
    return name == "output.weight" || (biases_ && name.ends_with(".bias"));
  }
  std::vector<TensorPlan> plans;

 protected:
  op::Weight find(const std::string& name, const std::vector<int64_t>& dims) override {
    plans.push_back({name, &quant::info(quant::Format::kF32), dims});
    return {};
  }

 private:
  bool biases_;
};

// A small model as lists that a test can spoil before they are written.
struct Draft {
  std::vector<Entry> metadata;
  std::vector<TensorPlan> tensors;

  Entry& entry(const std::string& key) {
    for (Entry& e : metadata)
      if (e.key == key) return e;
    metadata.push_back({key, {}});
    return metadata.back();
  }
  void set(const std::string& key, uint32_t value) { entry(key).value = {value}; }
  void set(const std::string& key, float value) { entry(key).value = {value}; }
  void set(const std::string& key, std::string value) { entry(key).value = {std::move(value)}; }
  void set(const std::string& key, gguf::Array value) { entry(key).value = {std::move(value)}; }
  void erase(const std::string& key) {
    std::erase_if(metadata, [&](const Entry& e) { return e.key == key; });
  }
  TensorPlan& tensor(const std::string& name) {
    for (TensorPlan& t : tensors)
      if (t.name == name) return t;
    tensors.push_back({name, &quant::info(quant::Format::kF32), {1}});
    return tensors.back();
  }
  void erase_tensor(const std::string& name) {
    std::erase_if(tensors, [&](const TensorPlan& t) { return t.name == name; });
  }
};

class ModelTest : public ::testing::Test {
 protected:
  // Seven heads, one of keys and values, a head size other than width / heads.
  static Draft draft(const std::string& arch, bool biases = false, uint32_t layers = 2) {
    Draft d;
    d.set("general.architecture", arch);
    const auto key = [&](const char* name) { return arch + "." + name; };
    d.set(key("block_count"), layers);
    d.set(key("embedding_length"), 28u);
    d.set(key("attention.head_count"), 7u);
    d.set(key("attention.head_count_kv"), 1u);
    d.set(key("attention.key_length"), 6u);
    d.set(key("attention.value_length"), 6u);
    d.set(key("feed_forward_length"), 33u);
    d.set(key("context_length"), 64u);
    const bool rms = find_architecture(arch)->norm == op::Norm::Kind::kRms;
    d.set(key(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"), 1e-5f);
    Config config;
    config.arch = find_architecture(arch);
    config.layers = layers;
    config.width = 28;
    config.heads = 7;
    config.kv_heads = 1;
    config.head_size = config.value_size = 6;
    config.feed_forward = 33;
    config.context_length = 64;
    config.vocabulary = 50;
    config.rope.dims = 6;
    if (config.arch->experts) {
      d.set(key("expert_count"), 5u);
      d.set(key("expert_used_count"), 2u);
      d.set(key("expert_feed_forward_length"), 9u);
      config.experts.count = 5;
      config.experts.used = 2;
      config.experts.feed_forward = 9;
    }
    if (config.arch->latent) {
      d.set(key("attention.kv_lora_rank"), 10u);
      d.set(key("rope.dimension_count"), 4u);
      config.kv_heads = 7;
      config.latent.keys_values = 10;
      config.rope.dims = 4;
    }
    if (config.arch->shared_expert) {
      d.set(key("expert_shared_feed_forward_length"), 11u);
      config.experts.shared_feed_forward = 11;
    }
    NotedWeights weights(biases);
    forward_pass(config, 64, weights);
    d.tensors = weights.plans;
    return d;
  }

  Result<Model> load(const Draft& d) {
    auto writer = gguf::Writer::create(path_, d.metadata, d.tensors);
    if (!writer.ok()) return writer.error();
    Random random(1);
    for (const TensorPlan& t : d.tensors) {
      int64_t count = 1;
      for (const int64_t dim : t.dims) count *= dim;
      std::vector<float> values;
      if (t.format->id != 0) return error("the test writes only F32");
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(random.gaussian()));
      if (auto r = writer->write(std::as_bytes(std::span(values))); !r.ok()) return r.error();
    }
    if (auto r = writer->finish(); !r.ok()) return r.error();
    return Model::load(path_.string());
  }

  std::string failure(const Draft& d) {
    auto model = load(d);
    return model.ok() ? "loaded" : model.error().message;
  }

  const TemporaryFolder folder_ = TemporaryFolder::create().value();
  const std::filesystem::path path_ = folder_.path() / "model.gguf";
};

#define EXPECT_SAYS(message, part)                                                               \
  do {                                                                                           \
    const std::string said = (message);                                                          \
    EXPECT_NE(said.find(part), std::string::npos) << "expected: " << (part) << "\nin: " << said; \
  } while (false)

TEST_F(ModelTest, EveryArchitectureLoads) {
  for (const Architecture& arch : architectures())
    for (const bool biases : {false, true}) {
      SCOPED_TRACE(arch.name);
      auto model = load(draft(std::string(arch.name), biases));
      ASSERT_TRUE(model.ok()) << model.error().message;
      auto program = model->program(64);
      ASSERT_TRUE(program.ok()) << program.error().message;
      EXPECT_EQ(program->value(program->logits()).name, "logits");
    }
}

TEST_F(ModelTest, OpsReadOnlyWhatEarlierOnesWrote) {
  for (const Architecture& arch : architectures()) {
    auto model = load(draft(std::string(arch.name)));
    ASSERT_TRUE(model.ok()) << model.error().message;
    const op::Program program = *model->program(64);
    std::vector<bool> written(program.values.size());
    for (const op::Op& op : program.ops) {
      for (const op::ValueId id : op.inputs)
        EXPECT_TRUE(written[static_cast<size_t>(id)]) << arch.name;
      for (const op::ValueId id : op.outputs) {
        EXPECT_FALSE(written[static_cast<size_t>(id)]) << arch.name;
        written[static_cast<size_t>(id)] = true;
      }
    }
    EXPECT_EQ(program.value(program.logits()).name, "logits");
  }
}

TEST_F(ModelTest, TheProgramSaysWhichProductTheLogitsComeFrom) {
  for (const Architecture& arch : architectures())
    for (const bool divided : {false, true}) {
      Draft d = draft(std::string(arch.name));
      if (divided) d.set("granite.logit_scale", 8.0f);
      auto model = load(d);
      ASSERT_TRUE(model.ok()) << model.error().message;
      const op::Program program = *model->program(64);
      const bool scaled = (divided && arch.name == "granite") || arch.logit_cap > 0;
      EXPECT_EQ(program.value(program.head).name, scaled ? "output_projection" : "logits");
      const auto made = std::ranges::find_if(
          program.ops, [&](const op::Op& op) { return op.outputs.front() == program.head; });
      ASSERT_NE(made, program.ops.end());
      EXPECT_EQ(std::get<op::Linear>(made->what).weight.name, "output.weight") << arch.name;
    }
}

TEST_F(ModelTest, AllProblemsAreToldAtOnce) {
  Draft d = draft("llama");
  d.erase_tensor("blk.1.ffn_down.weight");
  d.tensor("blk.0.attn_q.weight").dims = {42, 28};
  d.tensor("output_norm.weight").dims = {27};
  d.tensor("blk.0.attn_sinks.weight").dims = {7};
  const std::string message = failure(d);
  EXPECT_SAYS(message, "4 problems");
  EXPECT_SAYS(message, "tensor blk.1.ffn_down.weight is missing; expected shape [33, 28]");
  EXPECT_SAYS(message, "tensor blk.0.attn_q.weight has shape [42, 28]; expected [28, 42]");
  EXPECT_SAYS(message, "tensor output_norm.weight has shape [27]; expected [28]");
  EXPECT_SAYS(message, "tensor blk.0.attn_sinks.weight [7] has no place in this architecture");
}

TEST_F(ModelTest, MetadataProblemsAreToldAtOnce) {
  Draft d = draft("llama");
  d.erase("llama.block_count");
  d.set("llama.embedding_length", "many");
  d.set("llama.attention.head_count_kv", 2u);
  d.set("llama.rope.dimension_count", 5u);
  d.set("llama.rope.scaling.type", "spiral");
  const std::string message = failure(d);
  EXPECT_SAYS(message, "5 problems");
  EXPECT_SAYS(message, "llama.block_count");
  EXPECT_SAYS(message, "llama.embedding_length");
  EXPECT_SAYS(message, "llama.attention.head_count_kv is 2; expected a divisor of");
  EXPECT_SAYS(message,
              "llama.rope.dimension_count is 5; expected an even number up to the head size 6");
  EXPECT_SAYS(message,
              "llama.rope.scaling.type is 'spiral'; supported: none, linear, yarn, longrope");
}

TEST_F(ModelTest, AnotherArchitectureListsWhatIsSupported) {
  Draft d = draft("llama");
  d.set("general.architecture", "mamba");
  EXPECT_SAYS(
      failure(d),
      "architecture 'mamba' is not supported; supported: gpt2, llama, qwen2, qwen3, phi3, granite");
  d.erase("general.architecture");
  EXPECT_SAYS(failure(d), "general.architecture");
}

// The first op of a kind.
template <class T>
T first(const Model& model) {
  const op::Program program = *model.program(64);
  for (const op::Op& op : program.ops)
    if (const auto* found = std::get_if<T>(&op.what)) return *found;
  ADD_FAILURE() << "no such op";
  return {};
}

TEST_F(ModelTest, ExpertsFollowTheArchitectureOrTheFile) {
  Draft d = draft("qwen3moe");
  Model model = *load(d);
  EXPECT_EQ(first<op::Choose>(model).scoring, op::Scoring::kSoftmax);
  EXPECT_EQ(first<op::Choose>(model).groups, 1);
  EXPECT_TRUE(first<op::Weigh>(model).normalize);
  EXPECT_EQ(first<op::Weigh>(model).scale, 1);
  EXPECT_EQ(first<op::ExpertLinear>(model).experts, 5);
  EXPECT_EQ(first<op::ExpertLinear>(model).rows(), 9);
  EXPECT_EQ(first<op::ExpertLinear>(model).weight.columns, 28);
  EXPECT_FALSE(first<op::Weigh>(*load(draft("olmoe"))).normalize);
  EXPECT_FALSE(first<op::Weigh>(*load(draft("qwen2moe"))).normalize);

  d.entry("qwen3moe.expert_weights_norm").value = {false};
  d.set("qwen3moe.expert_weights_scale", 2.5f);
  d.set("qwen3moe.expert_gating_func", 2u);
  model = *load(d);
  EXPECT_EQ(first<op::Choose>(model).scoring, op::Scoring::kSigmoid);
  EXPECT_FALSE(first<op::Weigh>(model).normalize);
  EXPECT_EQ(first<op::Weigh>(model).scale, 2.5);
  // The softmax of those that are chosen is that of all, normalized.
  d.set("qwen3moe.expert_gating_func", 3u);
  model = *load(d);
  EXPECT_EQ(first<op::Weigh>(model).scoring, op::Scoring::kSoftmax);
  EXPECT_TRUE(first<op::Weigh>(model).normalize);
  // What a file's maker left out.
  d.set("qwen3moe.expert_gating_func", 0u);
  d.set("qwen3moe.expert_weights_scale", 0.0f);
  EXPECT_EQ(first<op::Weigh>(*load(d)).scale, 1);
}

TEST_F(ModelTest, GptOssHasSinksBiasesAndAlternatingWindows) {
  Draft d = draft("gpt-oss");
  d.set("gpt-oss.attention.sliding_window", 3u);
  d.set("gpt-oss.rope.scaling.type", std::string("yarn"));
  d.set("gpt-oss.rope.scaling.factor", 4.0f);
  d.set("gpt-oss.rope.scaling.original_context_length", 16u);
  const Model model = *load(d);
  const auto attention = first<op::Attention>(model);
  ASSERT_TRUE(attention.sinks);
  EXPECT_EQ(attention.sinks->name, "blk.0.attn_sinks.weight");
  EXPECT_EQ(attention.sinks->columns, attention.heads);
  EXPECT_EQ(attention.window, 3);
  EXPECT_EQ(first<op::Activate>(model).kind, op::Activate::Kind::kClampedSwish);
  EXPECT_TRUE(first<op::Weigh>(model).normalize);
  EXPECT_FALSE(first<op::Rope>(model).yarn->whole_pairs);
  const auto experts = first<op::ExpertLinear>(model);
  ASSERT_TRUE(experts.bias);
  EXPECT_EQ(experts.bias->rows, 5);
  EXPECT_EQ(experts.bias->columns, 9);
  std::vector<int64_t> windows;
  const op::Program program = *model.program(64);
  for (const op::Op& op : program.ops)
    if (const auto* found = std::get_if<op::Attention>(&op.what)) windows.push_back(found->window);
  EXPECT_EQ(windows, (std::vector<int64_t>{3, 0}));

  for (const char* name : {"attn_sinks.weight", "post_attention_norm.weight", "attn_output.bias",
                           "attn_k.bias", "ffn_gate_inp.bias", "ffn_down_exps.bias"}) {
    Draft lacking = d;
    const std::string full = fmt::format("blk.1.{}", name);
    std::erase_if(lacking.tensors, [&](const TensorPlan& t) { return t.name == full; });
    EXPECT_SAYS(failure(lacking), fmt::format("tensor {} is missing", full));
  }
  d.tensor("blk.0.attn_sinks.weight").dims = {attention.heads + 1};
  EXPECT_SAYS(failure(d), "tensor blk.0.attn_sinks.weight has shape");
}

TEST_F(ModelTest, AFileOfLlamaCanHaveExperts) {
  Draft d = draft("llama");
  d.set("llama.expert_count", 3u);
  d.set("llama.expert_used_count", 3u);
  std::erase_if(d.tensors, [](const TensorPlan& t) {
    return t.name.find("ffn_gate") != t.name.npos || t.name.find("ffn_up") != t.name.npos ||
           t.name.find("ffn_down") != t.name.npos;
  });
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string prefix = layer;
    d.tensor(prefix + "ffn_gate_inp.weight").dims = {28, 3};
    d.tensor(prefix + "ffn_gate_exps.weight").dims = {28, 33, 3};
    d.tensor(prefix + "ffn_up_exps.weight").dims = {28, 33, 3};
    d.tensor(prefix + "ffn_down_exps.weight").dims = {33, 28, 3};
  }
  EXPECT_EQ(failure(d), "loaded");
  d.tensor("blk.1.ffn_up_exps.weight").dims = {28, 33, 2};
  EXPECT_SAYS(failure(d),
              "tensor blk.1.ffn_up_exps.weight has shape [28, 33, 2]; expected [28, 33, 3]");
}

TEST_F(ModelTest, ExpertsInOtherTensorsAreToldOf) {
  Draft d = draft("qwen3moe");
  d.erase_tensor("blk.0.ffn_gate_exps.weight");
  d.tensor("blk.0.ffn_gate.0.weight").dims = {28, 9};
  EXPECT_SAYS(failure(d),
              "tensor blk.0.ffn_gate_exps.weight is missing; expected shape [28, 9, 5]; the file "
              "has blk.0.ffn_gate.0.weight, a tensor for each expert, as files of 2023 do: convert "
              "the model anew");
  d = draft("qwen3moe");
  d.erase_tensor("blk.1.ffn_up_exps.weight");
  d.tensor("blk.1.ffn_gate_up_exps.weight").dims = {28, 18, 5};
  EXPECT_SAYS(failure(d),
              "tensor blk.1.ffn_up_exps.weight is missing; expected shape [28, 9, 5]; the file has "
              "blk.1.ffn_gate_up_exps.weight, gate and up in one: convert the model anew without "
              "--fuse-gate-up-exps");
  d.erase_tensor("blk.1.ffn_down_exps.weight");
  EXPECT_SAYS(failure(d),
              "tensor blk.1.ffn_down_exps.weight is missing; expected shape [9, 28, 5]");
}

TEST_F(ModelTest, ExpertsThatMakeNoSenseAreToldAtOnce) {
  const auto with = [](const char* key, uint32_t value) {
    Draft d = draft("qwen3moe");
    d.set(std::string("qwen3moe.") + key, value);
    return d;
  };
  EXPECT_SAYS(failure(with("expert_count", 0)),
              "qwen3moe.expert_count is not there or 0; expected a number of experts");
  EXPECT_SAYS(failure(with("expert_used_count", 6)),
              "qwen3moe.expert_used_count is 6; expected at most qwen3moe.expert_count = 5");
  EXPECT_SAYS(failure(with("expert_used_count", 0)), "qwen3moe.expert_used_count is 0");
  EXPECT_SAYS(failure(with("expert_group_count", 2)),
              "qwen3moe.expert_group_count is 2; expected a divisor of qwen3moe.expert_count = 5");
  EXPECT_SAYS(failure(with("expert_gating_func", 4)),
              "qwen3moe.expert_gating_func is 4; supported: 1 (softmax), 2 (sigmoid), 3");
  Draft d = with("expert_group_count", 5);
  d.set("qwen3moe.expert_group_used_count", 6u);
  EXPECT_SAYS(failure(d),
              "qwen3moe.expert_group_used_count is 6; expected at most "
              "qwen3moe.expert_group_count = 5");
  d.set("qwen3moe.expert_group_used_count", 1u);
  EXPECT_SAYS(failure(d),
              "qwen3moe.expert_used_count is 2; the groups that are used have 1 experts");
  d = with("expert_weights_norm", 1);
  EXPECT_SAYS(failure(d), "qwen3moe.expert_weights_norm': found u32 1, expected a bool");
  d = draft("gpt2");
  d.set("gpt2.expert_count", 4u);
  EXPECT_SAYS(failure(d), "gpt2.expert_count is 4; gpt2 has no experts");
}

TEST_F(ModelTest, LatentAttentionHasKeysAndValuesForEveryHead) {
  Draft d = draft("deepseek2");
  Model model = *load(d);
  const op::Attention attention = first<op::Attention>(model);
  EXPECT_EQ(attention.kv_heads, 7);
  EXPECT_EQ(attention.head_size, 6);
  EXPECT_EQ(attention.value_size, 6);
  EXPECT_DOUBLE_EQ(attention.scale, 1 / std::sqrt(6.0));
  EXPECT_EQ(first<op::Rope>(model).head_size, 4);
  EXPECT_EQ(first<op::Rope>(model).pairing, op::Rope::Pairing::kAdjacent);
  EXPECT_FALSE(first<op::Weigh>(model).normalize);
  EXPECT_EQ(first<op::Choose>(model).group_scores, 1);

  // Files of today count the short row as one head, and have the sizes of heads elsewhere.
  d.set("deepseek2.attention.key_length", 14u);
  d.set("deepseek2.attention.value_length", 10u);
  d.set("deepseek2.attention.key_length_mla", 6u);
  d.set("deepseek2.attention.value_length_mla", 6u);
  EXPECT_EQ(first<op::Attention>(*load(d)).head_size, 6);
  EXPECT_EQ(first<op::Attention>(*load(d)).value_size, 6);

  d.set("deepseek2.attention.q_lora_rank", 3u);
  EXPECT_SAYS(failure(d), "tensor blk.0.attn_q_a.weight is missing; expected shape [28, 3]");
  d = draft("deepseek2");
  d.erase("deepseek2.attention.kv_lora_rank");
  EXPECT_SAYS(failure(d), "deepseek2.attention.kv_lora_rank");
  d = draft("deepseek2");
  d.set("deepseek2.rope.dimension_count", 6u);
  EXPECT_SAYS(failure(d),
              "deepseek2.rope.dimension_count is 6; expected less than the head size 6");
  d = draft("deepseek2");
  d.set("deepseek2.attention.temperature_scale", 0.1f);
  EXPECT_SAYS(failure(d), "deepseek2.attention.temperature_scale is not supported");
}

TEST_F(ModelTest, YarnSharpensTheScoresOfLatentAttentionByWhatTheFileSays) {
  Draft d = draft("deepseek2");
  d.set("deepseek2.rope.scaling.type", std::string("yarn"));
  d.set("deepseek2.rope.scaling.factor", 40.0f);
  d.set("deepseek2.rope.scaling.original_context_length", 16u);
  EXPECT_DOUBLE_EQ(first<op::Attention>(*load(d)).scale, 1 / std::sqrt(6.0));
  EXPECT_DOUBLE_EQ(op::rope_magnitude(first<op::Rope>(*load(d))), 1 + 0.1 * std::log(40.0));
  d.set("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f);
  const double sharpened = 1 + static_cast<double>(0.0707f) * std::log(40.0);
  EXPECT_NEAR(first<op::Attention>(*load(d)).scale, sharpened * sharpened / std::sqrt(6.0), 1e-12);
  EXPECT_DOUBLE_EQ(op::rope_magnitude(first<op::Rope>(*load(d))), 1);
}

TEST_F(ModelTest, LatentAttentionReadsItsWeightWholeOrInTwo) {
  const auto is_weight = [](const op::Weight& weight, const char* name) {
    return weight.name == std::string("blk.1.") + name;
  };
  const auto find_linear = [&](const op::Program& program, const char* name) {
    for (const op::Op& op : program.ops)
      if (const auto* linear = std::get_if<op::Linear>(&op.what);
          linear != nullptr && is_weight(linear->weight, name))
        return linear->weight;
    ADD_FAILURE() << name;
    return op::Weight{};
  };
  Draft d = draft("deepseek2");
  const Model split = *load(d);
  const op::Weight k = find_linear(*split.program(64), "attn_k_b.weight");
  ASSERT_EQ(k.rows, 7 * 2);
  ASSERT_EQ(k.columns, 10);
  const auto* numbers =
      reinterpret_cast<const float*>(split.file().tensor("blk.1.attn_k_b.weight")->data.data());
  for (int64_t head = 0; head < 7; ++head)
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t column = 0; column < 10; ++column)
        EXPECT_EQ(reinterpret_cast<const float*>(k.row(head * 2 + row))[column],
                  numbers[(head * 10 + column) * 2 + row]);
  EXPECT_EQ(find_linear(*split.program(64), "attn_v_b.weight").rows, 7 * 6);

  for (const char* layer : {"blk.0.", "blk.1."}) {
    d.erase_tensor(std::string(layer) + "attn_k_b.weight");
    d.erase_tensor(std::string(layer) + "attn_v_b.weight");
    d.tensor(std::string(layer) + "attn_kv_b.weight").dims = {10, 7 * 8};
  }
  const Model whole = *load(d);
  EXPECT_EQ(find_linear(*whole.program(64), "attn_kv_b.weight").rows, 7 * 8);
}

// Every format: what was decoded is what the file means.
TEST(Transposed, MatricesHaveTheNumbersOfTheFile) {
  Random random(5);
  for (const quant::Format format :
       {quant::Format::kF32, quant::Format::kF16, quant::Format::kBF16, quant::Format::kQ8_0,
        quant::Format::kQ5_0, quant::Format::kQ4_K}) {
    const quant::FormatInfo& info = quant::info(format);
    constexpr int64_t kCount = 3, kRows = 7, kColumns = 256;
    std::vector<float> numbers(static_cast<size_t>(kCount * kRows * kColumns));
    for (float& number : numbers) number = static_cast<float>(random.gaussian());
    std::vector<std::byte> data(static_cast<size_t>(quant::size_bytes(info, std::ssize(numbers))));
    quant::encode(format, numbers.data(), std::ssize(numbers), data.data());
    const op::Weight weight{"w", &info, kRows, kColumns, data};
    const op::Weight out = transposed(weight, kCount);
    EXPECT_EQ(out.rows, kCount * kColumns);
    EXPECT_EQ(out.columns, kRows);
    EXPECT_EQ(&out.format_in_engine(), &info);
    std::vector<float> before(static_cast<size_t>(kColumns)), after(static_cast<size_t>(kRows));
    for (int64_t one = 0; one < kCount; ++one)
      for (int64_t row = 0; row < kRows; ++row) {
        quant::decode(format, weight.row(one * kRows + row), kColumns, before.data());
        for (int64_t column = 0; column < kColumns; ++column) {
          quant::decode(out.format->format(), out.row(one * kColumns + column), kRows,
                        after.data());
          ASSERT_EQ(after[static_cast<size_t>(row)], before[static_cast<size_t>(column)]);
        }
      }
  }
}

TEST_F(ModelTest, FirstLayersCanBeDense) {
  Draft d = draft("deepseek2");
  d.set("deepseek2.leading_dense_block_count", 1u);
  EXPECT_SAYS(failure(d), "tensor blk.0.ffn_gate.weight is missing; expected shape [28, 33]");
  EXPECT_SAYS(failure(d), "tensor blk.0.ffn_gate_exps.weight [28, 9, 5] has no place");
  // A file without experts says that all layers are dense.
  d.erase("deepseek2.expert_count");
  EXPECT_SAYS(failure(d), "deepseek2.expert_count is not there or 0");
  d.set("deepseek2.leading_dense_block_count", 2u);
  EXPECT_SAYS(failure(d), "tensor blk.1.ffn_gate.weight is missing; expected shape [28, 33]");
}

// The attention ops of a file's layers.
std::vector<op::Attention> attentions(const Model& model) {
  std::vector<op::Attention> out;
  const op::Program program = *model.program(64);
  for (const op::Op& op : program.ops)
    if (const auto* attention = std::get_if<op::Attention>(&op.what)) out.push_back(*attention);
  return out;
}

TEST_F(ModelTest, WindowsFollowTheArchitectureOrTheFile) {
  Draft d = draft("gemma3", false, 7);
  d.set("gemma3.attention.sliding_window", 5u);
  const auto windows = [&](const Draft& of) {
    const auto model = load(of);
    EXPECT_TRUE(model.ok()) << model.error().message;
    std::vector<int64_t> out;
    for (const op::Attention& attention : attentions(*model)) out.push_back(attention.window);
    return out;
  };
  EXPECT_EQ(windows(d), (std::vector<int64_t>{5, 5, 5, 5, 5, 0, 5}));
  d.set("gemma3.attention.sliding_window_pattern", 2u);
  EXPECT_EQ(windows(d), (std::vector<int64_t>{5, 0, 5, 0, 5, 0, 5}));
  d.set("gemma3.attention.sliding_window_pattern", 0u);
  EXPECT_EQ(windows(d), (std::vector<int64_t>(7, 5)));
  d.set("gemma3.attention.sliding_window_pattern",
        gguf::Array{std::vector<bool>{true, false, false, true, false, false, false}});
  EXPECT_EQ(windows(d), (std::vector<int64_t>{5, 0, 0, 5, 0, 0, 0}));
  d.set("gemma3.attention.sliding_window_pattern", gguf::Array{std::vector<bool>(6)});
  EXPECT_SAYS(failure(d),
              "gemma3.attention.sliding_window_pattern has 6 numbers; expected one for "
              "each of 7 layers");
  d.set("gemma3.attention.sliding_window_pattern", gguf::Array{std::vector<int32_t>(7, 2)});
  EXPECT_SAYS(failure(d), "an array of bools, or of 0 and 1");
}

TEST_F(ModelTest, WindowedLayersHaveTheirOwnRotation) {
  Draft d = draft("gemma3", false, 7);
  d.set("gemma3.attention.sliding_window", 5u);
  d.set("gemma3.rope.freq_base", 1e6f);
  d.set("gemma3.rope.scaling.type", std::string("linear"));
  d.set("gemma3.rope.scaling.factor", 8.0f);
  const auto model = load(d);
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<std::pair<double, double>> ropes;
  const op::Program program = *model->program(64);
  for (const op::Op& op : program.ops)
    if (const auto* rope = std::get_if<op::Rope>(&op.what))
      ropes.emplace_back(rope->base, rope->position_scale);
  ASSERT_EQ(ropes.size(), 14U);
  for (size_t i = 0; i < ropes.size(); ++i)
    EXPECT_EQ(ropes[i], i / 2 == 5 ? std::pair(1e6, 0.125) : std::pair(1e4, 1.0)) << i;
}

TEST_F(ModelTest, SomeLayersDoNotRotate) {
  const auto model = load(draft("smollm3", false, 9));
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::set<int64_t> rotated;
  const op::Program program = *model->program(64);
  for (const op::Op& op : program.ops)
    if (std::holds_alternative<op::Rope>(op.what)) rotated.insert(op.layer);
  EXPECT_EQ(rotated, (std::set<int64_t>{0, 1, 2, 4, 5, 6, 8}));
}

TEST_F(ModelTest, ScoresAndLogitsAreCapped) {
  Draft d = draft("gemma2");
  const auto caps = [&](const Draft& of) {
    const auto model = load(of);
    EXPECT_TRUE(model.ok()) << model.error().message;
    const op::Program program = *model->program(64);
    const auto* last = std::get_if<op::SoftCap>(&program.ops.back().what);
    return std::pair(attentions(*model)[0].soft_cap, last != nullptr ? last->cap : 0);
  };
  EXPECT_EQ(caps(d), std::pair(50.0, 30.0));
  d.set("gemma2.attn_logit_softcapping", 7.0f);
  d.set("gemma2.final_logit_softcapping", 0.0f);
  EXPECT_EQ(caps(d), std::pair(7.0, 0.0));
  d.set("gemma2.final_logit_softcapping", -1.0f);
  EXPECT_SAYS(failure(d), "gemma2.final_logit_softcapping is -1; expected 0 or more");
}

TEST_F(ModelTest, HostileCountsAreErrorsAndCostNothing) {
  for (const char* key :
       {"block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
        "attention.key_length", "attention.value_length", "feed_forward_length"})
    for (const uint32_t value : {0u, 0x7fffffffu, 0xffffffffu}) {
      Draft d = draft("llama");
      d.set(std::string("llama.") + key, value);
      EXPECT_NE(failure(d), "loaded") << key << " " << value;
    }
  Draft d = draft("llama");
  d.set("llama.block_count", 1000000000u);
  EXPECT_SAYS(failure(d), "llama.block_count is 1000000000, but the file has");
  d = draft("llama");
  d.set("llama.attention.layer_norm_rms_epsilon", std::numeric_limits<float>::quiet_NaN());
  EXPECT_SAYS(failure(d), "llama.attention.layer_norm_rms_epsilon is nan");
}

TEST_F(ModelTest, RequiredBiasesAreRequired) {
  Draft d = draft("qwen2");
  d.erase_tensor("blk.1.attn_k.bias");
  EXPECT_SAYS(failure(d), "tensor blk.1.attn_k.bias is missing; expected shape [6]");
}

// One head of keys: its norm is as wide as the row, and yet has no bias.
TEST_F(ModelTest, NormsOfSingleHeadsHaveNoBias) {
  Draft d = draft("stablelm");
  for (const char* layer : {"blk.0.", "blk.1."}) {
    d.tensor(fmt::format("{}attn_q_norm.weight", layer)).dims = {6, 7};
    d.tensor(fmt::format("{}attn_k_norm.weight", layer)).dims = {6};
  }
  const auto model = load(d);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const op::Program program = *model->program(8);
  int of_heads = 0;
  for (const op::Op& op : program.ops) {
    const auto* norm = std::get_if<op::Norm>(&op.what);
    if (norm == nullptr) continue;
    const bool head = norm->group == 6;
    of_heads += head;
    EXPECT_EQ(norm->bias.has_value(), !head) << norm->weight.name;
  }
  EXPECT_EQ(of_heads, 4);
  d.tensor("blk.1.attn_k_norm.bias").dims = {6};
  EXPECT_SAYS(failure(d), "tensor blk.1.attn_k_norm.bias [6] has no place in this architecture");
}

TEST_F(ModelTest, TiedOutputUsesTheEmbeddingTable) {
  Draft d = draft("llama");
  d.erase_tensor("output.weight");
  auto model = load(d);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const op::Program program = *model->program(8);
  EXPECT_EQ(std::get<op::Linear>(program.ops.back().what).weight.name, "token_embd.weight");
}

TEST_F(ModelTest, ContextBeyondTheModelsIsAnError) {
  auto model = load(draft("llama"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_TRUE(model->program(64).ok());
  const auto program = model->program(65);
  ASSERT_FALSE(program.ok());
  EXPECT_SAYS(program.error().message, "a context of 65 positions was asked for; the model has 64");
}

TEST_F(ModelTest, GraniteScalesBecomeOps) {
  Draft d = draft("granite");
  d.set("granite.embedding_scale", 12.0f);
  d.set("granite.residual_scale", 0.25f);
  d.set("granite.attention.scale", 0.5f);
  d.set("granite.logit_scale", 8.0f);
  auto model = load(d);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const op::Program program = *model->program(8);
  std::vector<double> factors;
  for (const op::Op& op : program.ops) {
    if (const auto* scale = std::get_if<op::Scale>(&op.what)) factors.push_back(scale->factor);
    if (const auto* attention = std::get_if<op::Attention>(&op.what)) {
      EXPECT_EQ(attention->scale, 0.5);
    }
  }
  EXPECT_EQ(factors, (std::vector<double>{12, 0.25, 0.25, 0.25, 0.25, 0.125}));
}

TEST_F(ModelTest, PhiFactorsDependOnTheContextAskedFor) {
  Draft d = draft("phi3");
  d.set("phi3.rope.scaling.original_context_length", 32u);
  d.set("phi3.rope.scaling.attn_factor", 1.19f);
  d.tensor("rope_factors_short.weight").dims = {3};
  d.tensor("rope_factors_long.weight").dims = {3};
  auto model = load(d);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto factors = [&](int64_t context) {
    const op::Program program = *model->program(context);
    for (const op::Op& op : program.ops)
      if (const auto* rope = std::get_if<op::Rope>(&op.what)) return rope->factors;
    return std::vector<float>{};
  };
  const auto stored = [&](const char* name) {
    const auto* data = reinterpret_cast<const float*>(model->file().tensor(name)->data.data());
    return std::vector<float>(data, data + 3);
  };
  EXPECT_EQ(factors(32), stored("rope_factors_short.weight"));
  EXPECT_EQ(factors(33), stored("rope_factors_long.weight"));
}

}  // namespace
}  // namespace lockstep::model
