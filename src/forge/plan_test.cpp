#include "forge/plan.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "forge/known.h"
#include "forge/metadata.h"

namespace lockstep::forge {
namespace {

std::map<std::string, int> mix_of(const Plan& plan) {
  std::map<std::string, int> mix;
  for (const gguf::TensorPlan& tensor : plan.tensors) ++mix[std::string(tensor.format->name)];
  return mix;
}

const gguf::TensorPlan* find(const Plan& plan, std::string_view name) {
  for (const gguf::TensorPlan& tensor : plan.tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

std::string format_of(const Plan& plan, std::string_view name) {
  const gguf::TensorPlan* tensor = find(plan, name);
  return tensor != nullptr ? std::string(tensor->format->name) : "absent";
}

Plan plan_known(std::string_view name, std::string type) {
  Spec spec = (*find_known_model(name))->spec;
  spec.type = std::move(type);
  auto plan = plan_model(spec);
  LS_CHECK(plan.ok(), "{}", plan.error().message);
  return *std::move(plan);
}

std::string error_of(const Spec& spec) {
  const auto plan = plan_model(spec);
  return plan.ok() ? "" : plan.error().message;
}

TEST(KnownModels, HaveTheirPublishedParameterCounts) {
  for (const KnownModel& model : known_models()) {
    SCOPED_TRACE(model.name);
    EXPECT_EQ(plan_known(model.name, "f16").parameters(), model.parameters);
  }
}

// By arithmetic from the shapes and the recipe; not yet held against the published files.
TEST(KnownModels, HaveTheirTensorCounts) {
  const std::pair<const char*, size_t> counts[] = {
      {"qwen2.5-0.5b", 290}, {"tinyllama-1.1b", 201}, {"phi3-mini", 195},     {"llama3-8b", 291},
      {"llama3.1-8b", 292},  {"gpt2", 148},           {"smollm2-135m", 272},  {"qwen3-0.6b", 310},
      {"llama3.2-1b", 147},  {"mistral-7b", 291},     {"granite-3.1-2b", 362}};
  for (const auto& [name, count] : counts) {
    SCOPED_TRACE(name);
    EXPECT_EQ(plan_known(name, "f16").tensors.size(), count);
  }
}

TEST(KnownModels, AnUnknownNameListsTheKnown) {
  const auto found = find_known_model("gpt5");
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("qwen2.5-0.5b"), std::string::npos);
}

TEST(Plan, MixesAreThoseOfPublishedFiles) {
  using Mix = std::map<std::string, int>;
  EXPECT_EQ(mix_of(plan_known("llama3-8b", "q4_k_m")),
            (Mix{{"F32", 65}, {"Q4_K", 193}, {"Q6_K", 33}}));
  EXPECT_EQ(mix_of(plan_known("tinyllama-1.1b", "q4_k_m")),
            (Mix{{"F32", 45}, {"Q4_K", 135}, {"Q6_K", 21}}));
  // Rows of 896 are no whole number of 256.
  EXPECT_EQ(mix_of(plan_known("qwen2.5-0.5b", "q4_k_m")),
            (Mix{{"F32", 121}, {"Q4_K", 12}, {"Q5_0", 132}, {"Q6_K", 12}, {"Q8_0", 13}}));
  EXPECT_EQ(plan_known("llama3.1-8b", "q4_k_m").data_bytes(), 4'912'898'304);
}

TEST(Plan, EveryArchitectureIsPlannedFromItsForwardPass) {
  for (const model::Architecture& arch : model::architectures()) {
    SCOPED_TRACE(arch.name);
    Spec spec;
    spec.arch = arch.name;
    const auto plan = plan_model(spec);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_NE(find(*plan, "token_embd.weight"), nullptr);
    EXPECT_NE(find(*plan, "output.weight"), nullptr);
    const std::string down = arch.experts ? "ffn_down_exps.weight" : "ffn_down.weight";
    EXPECT_NE(find(*plan, "blk.1." + down), nullptr);
    EXPECT_EQ(find(*plan, "blk.2." + down), nullptr);
  }
}

TEST(Plan, ExpertsFollowTheSpec) {
  Spec spec{.feed_forward = 48, .experts = 5, .experts_used = 3};
  spec.width = 256;
  spec.type = "q4_k_m";
  const auto dims = [](const Plan& plan, const char* name) {
    const gguf::TensorPlan* tensor = find(plan, name);
    return tensor != nullptr ? tensor->dims : std::vector<int64_t>{};
  };
  Plan plan = *plan_model(spec);
  EXPECT_EQ(dims(plan, "blk.0.ffn_gate_inp.weight"), (std::vector<int64_t>{256, 5}));
  EXPECT_EQ(dims(plan, "blk.0.ffn_gate_exps.weight"), (std::vector<int64_t>{256, 48, 5}));
  EXPECT_EQ(dims(plan, "blk.0.ffn_down_exps.weight"), (std::vector<int64_t>{48, 256, 5}));
  EXPECT_EQ(find(plan, "blk.0.ffn_gate.weight"), nullptr);
  EXPECT_EQ(find(plan, "blk.0.ffn_gate_shexp.weight"), nullptr);
  EXPECT_EQ(plan.config.experts.feed_forward, 48);
  EXPECT_TRUE(std::ranges::any_of(plan.metadata, [](const gguf::Entry& entry) {
    return entry.key == "llama.expert_feed_forward_length";
  }));
  // Routers keep their digits.
  EXPECT_EQ(format_of(plan, "blk.0.ffn_gate_inp.weight"), "F32");
  EXPECT_EQ(format_of(plan, "blk.0.ffn_up_exps.weight"), "Q4_K");
  spec.arch = "qwen2moe";
  spec.expert_feed_forward = 32;
  plan = *plan_model(spec);
  EXPECT_EQ(dims(plan, "blk.1.ffn_up_exps.weight"), (std::vector<int64_t>{256, 32, 5}));
  EXPECT_EQ(dims(plan, "blk.1.ffn_up_shexp.weight"), (std::vector<int64_t>{256, 48}));
  EXPECT_EQ(dims(plan, "blk.1.ffn_gate_inp_shexp.weight"), std::vector<int64_t>{256});
  spec.biases = true;
  EXPECT_EQ(find(*plan_model(spec), "blk.1.ffn_up_exps.bias"), nullptr);
}

TEST(Plan, LatentAttentionFollowsTheSpec) {
  Spec spec{.arch = "deepseek2", .layers = 3, .heads = 5, .head_size = 22, .value_size = 14};
  spec.latent = 26;
  spec.query_latent = 19;
  spec.dense_layers = 1;
  spec.experts = 8;
  spec.experts_used = 3;
  spec.expert_feed_forward = 10;
  spec.shared_feed_forward = 20;
  spec.expert_groups = 4;
  spec.expert_groups_used = 2;
  spec.expert_scale = 2.5;
  spec.sigmoid_experts = spec.biases = true;
  spec.rope_dims = 8;
  const auto dims = [](const Plan& plan, const char* name) {
    const gguf::TensorPlan* tensor = find(plan, name);
    return tensor != nullptr ? tensor->dims : std::vector<int64_t>{};
  };
  using Dims = std::vector<int64_t>;
  Plan plan = *plan_model(spec);
  EXPECT_EQ(dims(plan, "blk.0.attn_q_a.weight"), (Dims{64, 19}));
  EXPECT_EQ(dims(plan, "blk.0.attn_q_b.weight"), (Dims{19, 110}));
  EXPECT_EQ(dims(plan, "blk.0.attn_kv_a_mqa.weight"), (Dims{64, 34}));
  EXPECT_EQ(dims(plan, "blk.0.attn_k_b.weight"), (Dims{14, 26, 5}));
  EXPECT_EQ(dims(plan, "blk.0.attn_v_b.weight"), (Dims{26, 14, 5}));
  EXPECT_EQ(dims(plan, "blk.0.attn_output.weight"), (Dims{70, 64}));
  EXPECT_EQ(dims(plan, "blk.0.ffn_up.weight"), (Dims{64, 192}));
  EXPECT_EQ(find(plan, "blk.0.ffn_up_exps.weight"), nullptr);
  EXPECT_EQ(dims(plan, "blk.1.ffn_up_shexp.weight"), (Dims{64, 20}));
  EXPECT_EQ(dims(plan, "blk.2.exp_probs_b.bias"), Dims{8});
  EXPECT_EQ(find(plan, "blk.1.attn_q_a.bias"), nullptr);
  EXPECT_EQ(plan.config.experts.groups, 4);
  EXPECT_EQ(plan.config.experts.groups_used, 2);
  EXPECT_EQ(plan.config.experts.scale, 2.5);
  EXPECT_EQ(plan.config.experts.scoring, op::Scoring::kSigmoid);
  EXPECT_TRUE(plan.config.experts.normalize);
  spec.query_latent = 0;
  spec.shared_feed_forward = 21;  // no whole number of experts
  plan = *plan_model(spec);
  EXPECT_EQ(dims(plan, "blk.0.attn_q.weight"), (Dims{64, 110}));
  EXPECT_EQ(plan.config.experts.shared_feed_forward, 21);
}

TEST(Plan, OptionalTensorsFollowTheSpec) {
  Spec spec;
  spec.tied = true;
  spec.biases = true;
  spec.rope_factors = {.kind = RopeFactors::Kind::kShared};
  const auto plan = plan_model(spec);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(find(*plan, "output.weight"), nullptr);
  EXPECT_EQ(find(*plan, "output.bias"), nullptr);
  EXPECT_NE(find(*plan, "blk.0.attn_q.bias"), nullptr);
  EXPECT_NE(find(*plan, "blk.0.ffn_down.bias"), nullptr);
  ASSERT_NE(find(*plan, "rope_freqs.weight"), nullptr);
  EXPECT_EQ(find(*plan, "rope_freqs.weight")->dims, std::vector<int64_t>{8});
  EXPECT_EQ(find(*plan, "rope_factors_long.weight"), nullptr);

  spec.rope_factors = {.kind = RopeFactors::Kind::kLongShort, .original_context = 64};
  const auto longer = plan_model(spec);
  ASSERT_TRUE(longer.ok()) << longer.error().message;
  EXPECT_EQ(find(*longer, "rope_freqs.weight"), nullptr);
  EXPECT_NE(find(*longer, "rope_factors_long.weight"), nullptr);
  EXPECT_NE(find(*longer, "rope_factors_short.weight"), nullptr);
}

TEST(Plan, PureMeansOneFormat) {
  Spec spec;
  spec.width = 256;
  spec.feed_forward = 512;
  spec.type = "q4_k_m";
  EXPECT_EQ(format_of(*plan_model(spec), "output.weight"), "Q6_K");
  spec.pure = true;
  EXPECT_EQ(format_of(*plan_model(spec), "output.weight"), "Q4_K");
  spec.pure = false;
  spec.type = "Q4_K";
  EXPECT_EQ(format_of(*plan_model(spec), "output.weight"), "Q4_K");
  EXPECT_EQ(format_of(*plan_model(spec), "output_norm.weight"), "F32");
  spec.width = 250;
  spec.heads = 5;
  EXPECT_EQ(format_of(*plan_model(spec), "output.weight"), "F16");
}

TEST(Plan, BadSpecsAreErrorsThatSayWhatIsWrong) {
  const auto contains = [](const std::string& message, std::string_view part) {
    return message.find(part) != std::string::npos;
  };
  EXPECT_PRED2(contains, error_of({.arch = "bert"}), "qwen2");
  EXPECT_PRED2(contains, error_of({.layers = 0}), "layers: found 0");
  EXPECT_PRED2(contains, error_of({.layers = 1000000}), "layers: found 1000000");
  EXPECT_PRED2(contains, error_of({.width = 65}), "multiple of llama.attention.head_count = 4");
  EXPECT_PRED2(contains, error_of({.kv_heads = 3}), "divisor of llama.attention.head_count = 4");
  EXPECT_PRED2(contains, error_of({.head_size = 7}), "even number up to the head size 7");
  EXPECT_PRED2(contains, error_of({.rope_dims = 32}), "up to the head size 16");
  EXPECT_PRED2(contains, error_of({.vocabulary = -1}), "vocabulary: found -1");
  EXPECT_PRED2(contains, error_of({.epsilon = -1}), "epsilon: found -1");
  EXPECT_PRED2(contains, error_of({.rope_base = 0.5}), "rope.freq_base");
  EXPECT_PRED2(contains, error_of({.embedding_scale = 12}), "llama has no embedding");
  EXPECT_PRED2(contains, error_of({.arch = "granite", .logit_scale = 0}), "scales: found 0");
  EXPECT_PRED2(contains, error_of({.type = "q9"}), "q4_k_m");
  EXPECT_PRED2(contains,
               error_of({.arch = "gpt2", .rope_factors = {.kind = RopeFactors::Kind::kShared}}),
               "no rotation");
  EXPECT_PRED2(contains,
               error_of({.rope_scaling = {.kind = RopeScaling::Kind::kLinear, .factor = 0}}),
               "factor 0");
  EXPECT_PRED2(contains,
               error_of({.rope_scaling = {.kind = RopeScaling::Kind::kYarn, .factor = 2}}),
               "original context 0");
  EXPECT_PRED2(contains, error_of({.experts = 4}), "experts used: found 0, expected 1 to 4");
  EXPECT_PRED2(contains, error_of({.experts = 4, .experts_used = 5}), "found 5, expected 1 to 4");
  EXPECT_PRED2(contains, error_of({.experts_used = 1}), "but no number of experts");
  EXPECT_PRED2(contains, error_of({.latent = 8}), "llama has no latent attention");
  EXPECT_PRED2(contains, error_of({.sigmoid_experts = true}), "but no number of experts");
  EXPECT_PRED2(contains, error_of({.experts = 4, .experts_used = 2, .expert_scale = 0}),
               "expert scale: found 0, expected more than 0");
  EXPECT_PRED2(contains,
               error_of({.rope_scaling = {.kind = RopeScaling::Kind::kYarn,
                                          .factor = 2,
                                          .original_context = 8,
                                          .sharpening = 1}}),
               "llama does not sharpen its scores");
  EXPECT_PRED2(contains, error_of({.experts = -1}), "experts: found -1, expected 0 or more");
  EXPECT_PRED2(contains, error_of({.arch = "gpt2", .experts = 4, .experts_used = 2}),
               "gpt2 has no experts");
  Spec spec;
  spec.tokenizer = {
      {"tokenizer.ggml.tokens", gguf::Value{gguf::Array{std::vector<std::string>(300, "a")}}}};
  EXPECT_PRED2(contains, error_of(spec), "at least the tokenizer's 300 tokens");
}

TEST(RopeFactors, SlowOnlyTheSlowPairs) {
  const Plan plan = plan_known("llama3.1-8b", "f16");
  const auto factors =
      shared_rope_factors((*find_known_model("llama3.1-8b"))->spec.rope_factors, plan.config);
  ASSERT_EQ(factors.size(), 64u);
  EXPECT_EQ(factors.front(), 1.0f);
  EXPECT_EQ(factors[28], 1.0f);
  EXPECT_GT(factors[30], 1.0f);
  EXPECT_EQ(factors.back(), 8.0f);
  EXPECT_TRUE(std::ranges::is_sorted(factors));
}

}  // namespace
}  // namespace lockstep::forge
