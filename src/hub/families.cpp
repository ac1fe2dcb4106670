#include "hub/families.h"

#include <algorithm>

namespace lockstep::hub {
namespace {

using TensorNames = TensorName[];
using Numbers = Number[];
using Flags = Flag[];
using Defaults = Default[];
using Demands = Demand[];
constexpr auto kReal = Number::Kind::kReal;

constexpr TensorNames kCommonTensors = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};
constexpr TensorNames kPaired = {
    {"self_attn.q_proj", "attn_q", Change::kPairHeads},
    {"self_attn.k_proj", "attn_k", Change::kPairKvHeads},
};
constexpr TensorNames kGpt2Tensors = {
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"ln_f", "output_norm"},
    {"ln_1", "attn_norm"},
    {"ln_2", "ffn_norm"},
    {"attn.c_attn", "attn_qkv", Change::kTranspose},
    {"attn.c_proj", "attn_output", Change::kTranspose},
    {"mlp.c_fc", "ffn_up", Change::kTranspose},
    {"mlp.c_proj", "ffn_down", Change::kTranspose},
};
constexpr TensorNames kGemmaTensors = {
    {"norm", "output_norm", Change::kAddOne},
    {"input_layernorm", "attn_norm", Change::kAddOne},
    {"post_attention_layernorm", "post_attention_norm", Change::kAddOne},
    {"pre_feedforward_layernorm", "ffn_norm", Change::kAddOne},
    {"post_feedforward_layernorm", "post_ffw_norm", Change::kAddOne},
    {"self_attn.q_norm", "attn_q_norm", Change::kAddOne},
    {"self_attn.k_norm", "attn_k_norm", Change::kAddOne},
};
constexpr TensorNames kOlmo2Tensors = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};
constexpr TensorNames kGlm4Tensors = {
    {"post_self_attn_layernorm", "post_attention_norm"},
    {"post_mlp_layernorm", "post_ffw_norm"},
};
constexpr TensorNames kPhi2Tensors = {
    {"final_layernorm", "output_norm"},
    {"self_attn.dense", "attn_output"},
    {"mlp.fc1", "ffn_up"},
    {"mlp.fc2", "ffn_down"},
};
constexpr TensorNames kStarcoder2Tensors = {
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
};

// What newer versions of transformers write has all experts of a layer in one tensor.
#define LS_JOINED_EXPERTS                                               \
  {"mlp.experts.gate_up_proj", "ffn_gate_exps", Change::kFirstHalf},    \
      {"mlp.experts.gate_up_proj", "ffn_up_exps", Change::kSecondHalf}, \
      {"mlp.experts.down_proj", "ffn_down_exps"}, {                     \
    "mlp.gate", "ffn_gate_inp"                                          \
  }
constexpr TensorNames kMixtralTensors = {
    {"self_attn.q_proj", "attn_q", Change::kPairHeads},
    {"self_attn.k_proj", "attn_k", Change::kPairKvHeads},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.experts.*.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.*.w2", "ffn_down_exps"},
    {"block_sparse_moe.experts.*.w3", "ffn_up_exps"},
    LS_JOINED_EXPERTS,
};
constexpr TensorNames kExpertTensors = {
    {"mlp.experts.*.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.*.up_proj", "ffn_up_exps"},
    {"mlp.experts.*.down_proj", "ffn_down_exps"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    LS_JOINED_EXPERTS,
};
#undef LS_JOINED_EXPERTS
constexpr TensorNames kGraniteMoeTensors = {
    {"self_attn.q_proj", "attn_q", Change::kPairHeads},
    {"self_attn.k_proj", "attn_k", Change::kPairKvHeads},
    {"block_sparse_moe.router.layer", "ffn_gate_inp"},
    {"block_sparse_moe.input_linear", "ffn_gate_exps", Change::kFirstHalf},
    {"block_sparse_moe.input_linear", "ffn_up_exps", Change::kSecondHalf},
    {"block_sparse_moe.output_linear", "ffn_down_exps"},
    {"shared_mlp.input_linear", "ffn_gate_shexp", Change::kFirstHalf},
    {"shared_mlp.input_linear", "ffn_up_shexp", Change::kSecondHalf},
    {"shared_mlp.output_linear", "ffn_down_shexp"},
};

constexpr std::string_view kRmsEpsilon = "attention.layer_norm_rms_epsilon";
constexpr std::string_view kLayerEpsilon = "attention.layer_norm_epsilon";

constexpr Numbers kCommonNumbers = {
    {"max_position_embeddings", "context_length"},
    {"hidden_size", "embedding_length"},
    {"intermediate_size", "feed_forward_length"},
    {"num_attention_heads", "attention.head_count"},
    {.hub = "num_key_value_heads", .gguf = "attention.head_count_kv", .required = false},
    {.hub = "head_dim", .gguf = "attention.key_length", .required = false},
    {.hub = "head_dim", .gguf = "attention.value_length", .required = false},
    {.hub = "vocab_size", .gguf = "vocab_size", .required = false},
};
constexpr Numbers kRmsNumbers = {{"rms_norm_eps", kRmsEpsilon, kReal}};
constexpr Numbers kLayerNormNumbers = {{"layer_norm_eps", kLayerEpsilon, kReal}};
constexpr Numbers kStarcoder2Numbers = {{"norm_epsilon", kLayerEpsilon, kReal}};
constexpr Numbers kGraniteNumbers = {
    {"rms_norm_eps", kRmsEpsilon, kReal},
    {"embedding_multiplier", "embedding_scale", kReal},
    {"residual_multiplier", "residual_scale", kReal},
    {"attention_multiplier", "attention.scale", kReal},
    {"logits_scaling", "logit_scale", kReal},
};
constexpr Numbers kMixtralNumbers = {
    {"rms_norm_eps", kRmsEpsilon, kReal},
    {.hub = "num_local_experts", .gguf = "expert_count", .other = "num_experts"},
    {"num_experts_per_tok", "expert_used_count"},
};
constexpr Numbers kQwen2MoeNumbers = {
    {"rms_norm_eps", kRmsEpsilon, kReal},
    {.hub = "num_experts", .gguf = "expert_count", .other = "num_local_experts"},
    {"num_experts_per_tok", "expert_used_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
};
constexpr Numbers kQwen3MoeNumbers = {
    {"rms_norm_eps", kRmsEpsilon, kReal},
    {.hub = "num_experts", .gguf = "expert_count", .other = "num_local_experts"},
    {"num_experts_per_tok", "expert_used_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
};
constexpr Numbers kOlmoeNumbers = {
    {"rms_norm_eps", kRmsEpsilon, kReal},
    {.hub = "num_experts", .gguf = "expert_count", .other = "num_local_experts"},
    {"num_experts_per_tok", "expert_used_count"},
};
constexpr Numbers kGraniteMoeNumbers = {
    {"rms_norm_eps", kRmsEpsilon, kReal},
    {"embedding_multiplier", "embedding_scale", kReal},
    {"residual_multiplier", "residual_scale", kReal},
    {"attention_multiplier", "attention.scale", kReal},
    {"logits_scaling", "logit_scale", kReal},
    {.hub = "num_local_experts", .gguf = "expert_count", .other = "num_experts"},
    {"num_experts_per_tok", "expert_used_count"},
    {.hub = "shared_intermediate_size",
     .gguf = "expert_shared_feed_forward_length",
     .required = false},
};
constexpr Numbers kGemmaNumbers = {
    {"rms_norm_eps", kRmsEpsilon, kReal},
    {.hub = "attn_logit_softcapping",
     .gguf = "attn_logit_softcapping",
     .kind = kReal,
     .required = false,
     .null_is_zero = true},
    {.hub = "final_logit_softcapping",
     .gguf = "final_logit_softcapping",
     .kind = kReal,
     .required = false,
     .null_is_zero = true},
};
constexpr Numbers kGpt2Numbers = {
    {"n_positions", "context_length"},
    {"n_embd", "embedding_length"},
    {"n_head", "attention.head_count"},
    {.hub = "n_inner", .gguf = "feed_forward_length", .required = false},
    {.hub = "vocab_size", .gguf = "vocab_size", .required = false},
    {"layer_norm_epsilon", kLayerEpsilon, kReal},
};

constexpr Defaults kLlamaDefaults = {{"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-6}};
constexpr Defaults kMistralDefaults = {{"max_position_embeddings", 131072},
                                       {"rms_norm_eps", 1e-6},
                                       {"num_key_value_heads", 8},
                                       {"sliding_window", 4096}};
constexpr Defaults kQwen2Defaults = {{"max_position_embeddings", 32768},
                                     {"rms_norm_eps", 1e-6},
                                     {"num_key_value_heads", 32},
                                     {"max_window_layers", 28}};
constexpr Defaults kQwen3Defaults = {{"max_position_embeddings", 32768},
                                     {"rms_norm_eps", 1e-6},
                                     {"num_key_value_heads", 32},
                                     {"head_dim", 128},
                                     {"max_window_layers", 28}};
constexpr Defaults kMixtralDefaults = {{"max_position_embeddings", 131072},
                                       {"rms_norm_eps", 1e-5},
                                       {"num_key_value_heads", 8},
                                       {"num_local_experts", 8},
                                       {"num_experts_per_tok", 2}};
constexpr Defaults kQwen2MoeDefaults = {{"max_position_embeddings", 32768},
                                        {"rms_norm_eps", 1e-6},
                                        {"num_key_value_heads", 16},
                                        {"max_window_layers", 28},
                                        {"num_experts", 60},
                                        {"num_experts_per_tok", 4},
                                        {"moe_intermediate_size", 1408},
                                        {"shared_expert_intermediate_size", 5632}};
constexpr Defaults kQwen3MoeDefaults = {
    {"max_position_embeddings", 32768}, {"rms_norm_eps", 1e-6},
    {"num_key_value_heads", 4},         {"num_experts", 128},
    {"num_experts_per_tok", 8},         {"moe_intermediate_size", 768}};
constexpr Defaults kOlmoeDefaults = {{"max_position_embeddings", 4096},
                                     {"rms_norm_eps", 1e-5},
                                     {"num_experts", 64},
                                     {"num_experts_per_tok", 8}};
constexpr Defaults kGraniteMoeDefaults = {
    {"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-6},      {"embedding_multiplier", 1},
    {"residual_multiplier", 1},        {"attention_multiplier", 1}, {"logits_scaling", 1},
    {"num_local_experts", 8},          {"num_experts_per_tok", 2}};
constexpr Defaults kPhi3Defaults = {{"max_position_embeddings", 4096}, {"rms_norm_eps", 1e-5}};
constexpr Defaults kGraniteDefaults = {
    {"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-6},      {"embedding_multiplier", 1},
    {"residual_multiplier", 1},        {"attention_multiplier", 1}, {"logits_scaling", 1}};
constexpr Defaults kGemma2Defaults = {{"max_position_embeddings", 8192},
                                      {"rms_norm_eps", 1e-6},
                                      {"num_attention_heads", 8},
                                      {"num_key_value_heads", 4},
                                      {"head_dim", 256},
                                      {"query_pre_attn_scalar", 256},
                                      {"sliding_window", 4096},
                                      {"attn_logit_softcapping", 50},
                                      {"final_logit_softcapping", 30}};
constexpr Defaults kGemma3Defaults = {{"max_position_embeddings", 131072},
                                      {"rms_norm_eps", 1e-6},
                                      {"num_attention_heads", 8},
                                      {"num_key_value_heads", 4},
                                      {"head_dim", 256},
                                      {"query_pre_attn_scalar", 256},
                                      {"sliding_window", 4096}};
constexpr Defaults kOlmo2Defaults = {{"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-5}};
constexpr Defaults kOlmo3Defaults = {
    {"max_position_embeddings", 2048}, {"rms_norm_eps", 1e-5}, {"sliding_window", 4096}};
constexpr Defaults kSmollm3Defaults = {{"max_position_embeddings", 32768},
                                       {"rms_norm_eps", 1e-6},
                                       {"num_key_value_heads", 4},
                                       {"no_rope_layer_interval", 4}};
constexpr Defaults kGlm4Defaults = {{"max_position_embeddings", 131072},
                                    {"rms_norm_eps", 1.5625e-7},
                                    {"num_key_value_heads", 2},
                                    {"head_dim", 128}};
constexpr Defaults kStablelmDefaults = {
    {"max_position_embeddings", 4096}, {"layer_norm_eps", 1e-5}, {"num_key_value_heads", 32}};
constexpr Defaults kPhi2Defaults = {{"max_position_embeddings", 2048}, {"layer_norm_eps", 1e-5}};
constexpr Defaults kStarcoder2Defaults = {
    {"max_position_embeddings", 4096}, {"norm_epsilon", 1e-5}, {"num_key_value_heads", 2}};
constexpr Defaults kGpt2Defaults = {{"n_positions", 1024}, {"layer_norm_epsilon", 1e-5}};

// Qwen's can have layers without experts, which GGUF files of these architectures cannot.
constexpr Flags kQwen2MoeFlags = {{"norm_topk_prob", "expert_weights_norm", false, false}};
constexpr Flags kQwen3MoeFlags = {{"norm_topk_prob", "expert_weights_norm", false, true}};
constexpr Demands kQwenMoeDemands = {
    {"hidden_act", R"("silu" "swish")"}, {"decoder_sparse_step", "1"}, {"mlp_only_layers", "[]"}};
constexpr Demands kOlmoeDemands = {{"hidden_act", R"("silu" "swish")"}, {"clip_qkv", "null"}};

#define LS_GELU R"("gelu_pytorch_tanh" "gelu_new")"
constexpr Demands kSilu = {{"hidden_act", R"("silu" "swish")"}};
constexpr Demands kGelu = {{"hidden_act", LS_GELU}};
constexpr Demands kGemmaDemands = {{"hidden_activation", LS_GELU},
                                   {"use_bidirectional_attention", "false"}};
constexpr Demands kPhi2Demands = {{"hidden_act", LS_GELU}, {"qk_layernorm", "false"}};
constexpr Demands kGpt2Demands = {{"activation_function", LS_GELU},
                                  {"scale_attn_weights", "true"},
                                  {"scale_attn_by_inverse_layer_idx", "false"},
                                  {"add_cross_attention", "false"}};
#undef LS_GELU

constexpr Family kFamilies[] = {
    {.model_type = "gpt2",
     .architecture = "gpt2",
     .tensors = kGpt2Tensors,
     .layers = "h",
     .numbers = kGpt2Numbers,
     .own_numbers_only = true,
     .defaults = kGpt2Defaults,
     .demands = kGpt2Demands,
     .tied = true,
     .rotated = false},
    {.model_type = "llama",
     .architecture = "llama",
     .tensors = kPaired,
     .numbers = kRmsNumbers,
     .defaults = kLlamaDefaults,
     .demands = kSilu},
    {.model_type = "mistral",
     .architecture = "llama",
     .tensors = kPaired,
     .numbers = kRmsNumbers,
     .defaults = kMistralDefaults,
     .demands = kSilu},
    {.model_type = "qwen2",
     .architecture = "qwen2",
     .numbers = kRmsNumbers,
     .defaults = kQwen2Defaults,
     .demands = kSilu,
     .window_needs_flag = true},
    {.model_type = "qwen3",
     .architecture = "qwen3",
     .numbers = kRmsNumbers,
     .defaults = kQwen3Defaults,
     .demands = kSilu,
     .window_needs_flag = true},
    {.model_type = "phi3",
     .architecture = "phi3",
     .numbers = kRmsNumbers,
     .defaults = kPhi3Defaults,
     .demands = kSilu,
     .always_window = true},
    {.model_type = "granite",
     .architecture = "granite",
     .tensors = kPaired,
     .numbers = kGraniteNumbers,
     .defaults = kGraniteDefaults,
     .demands = kSilu},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     .tensors = kGemmaTensors,
     .numbers = kGemmaNumbers,
     .defaults = kGemma2Defaults,
     .demands = kGemmaDemands,
     .tied = true,
     .root_of_head = true,
     .scaled_by_width = 46,
     .always_window = true,
     .window_period = 2},
    {.model_type = "gemma3_text",
     .architecture = "gemma3",
     .tensors = kGemmaTensors,
     .numbers = kGemmaNumbers,
     .defaults = kGemma3Defaults,
     .demands = kGemmaDemands,
     .tied = true,
     .rope_base = 1000000,
     .own_windowed_rope = true,
     .root_of_head = true,
     .scaled_by_width = 62,
     .always_window = true,
     .window_period = 6},
    {.model_type = "olmo2",
     .architecture = "olmo2",
     .tensors = kOlmo2Tensors,
     .numbers = kRmsNumbers,
     .defaults = kOlmo2Defaults,
     .demands = kSilu},
    {.model_type = "olmo3",
     .architecture = "olmo2",
     .tensors = kOlmo2Tensors,
     .numbers = kRmsNumbers,
     .defaults = kOlmo3Defaults,
     .demands = kSilu,
     .rope_base = 500000,
     .own_windowed_rope = true,
     .window_period = 4},
    {.model_type = "smollm3",
     .architecture = "smollm3",
     .tensors = kPaired,
     .numbers = kRmsNumbers,
     .defaults = kSmollm3Defaults,
     .demands = kSilu,
     .tied = true,
     .rope_base = 2000000,
     .unrotated_period = 4,
     .window_needs_flag = true},
    {.model_type = "glm4",
     .architecture = "glm4",
     .tensors = kGlm4Tensors,
     .numbers = kRmsNumbers,
     .defaults = kGlm4Defaults,
     .demands = kSilu,
     .rotary_part = 0.5},
    {.model_type = "stablelm",
     .architecture = "stablelm",
     .head_norms = true,
     .numbers = kLayerNormNumbers,
     .defaults = kStablelmDefaults,
     .demands = kSilu,
     .rotary_part = 0.25},
    {.model_type = "phi",
     .architecture = "phi2",
     .tensors = kPhi2Tensors,
     .numbers = kLayerNormNumbers,
     .defaults = kPhi2Defaults,
     .demands = kPhi2Demands,
     .rotary_part = 0.5},
    {.model_type = "mixtral",
     .architecture = "llama",
     .tensors = kMixtralTensors,
     .numbers = kMixtralNumbers,
     .defaults = kMixtralDefaults,
     .demands = kSilu,
     .rope_base = 1000000},
    {.model_type = "qwen2_moe",
     .architecture = "qwen2moe",
     .tensors = kExpertTensors,
     .numbers = kQwen2MoeNumbers,
     .flags = kQwen2MoeFlags,
     .defaults = kQwen2MoeDefaults,
     .demands = kQwenMoeDemands,
     .window_needs_flag = true},
    {.model_type = "qwen3_moe",
     .architecture = "qwen3moe",
     .tensors = kExpertTensors,
     .numbers = kQwen3MoeNumbers,
     .flags = kQwen3MoeFlags,
     .defaults = kQwen3MoeDefaults,
     .demands = kQwenMoeDemands,
     .window_needs_flag = true},
    {.model_type = "olmoe",
     .architecture = "olmoe",
     .tensors = kExpertTensors,
     .numbers = kOlmoeNumbers,
     .flags = kQwen2MoeFlags,
     .defaults = kOlmoeDefaults,
     .demands = kOlmoeDemands},
    {.model_type = "granitemoe",
     .architecture = "granitemoe",
     .tensors = kGraniteMoeTensors,
     .numbers = kGraniteMoeNumbers,
     .defaults = kGraniteMoeDefaults,
     .demands = kSilu},
    {.model_type = "granitemoeshared",
     .architecture = "granitemoe",
     .tensors = kGraniteMoeTensors,
     .numbers = kGraniteMoeNumbers,
     .defaults = kGraniteMoeDefaults,
     .demands = kSilu},
    {.model_type = "starcoder2",
     .architecture = "starcoder2",
     .tensors = kStarcoder2Tensors,
     .numbers = kStarcoder2Numbers,
     .defaults = kStarcoder2Defaults,
     .demands = kGelu,
     .tied = true},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family* find_family(std::string_view model_type) {
  const auto* found = std::ranges::find(kFamilies, model_type, &Family::model_type);
  return found != std::end(kFamilies) ? found : nullptr;
}

std::span<const TensorName> common_tensors() {
  return kCommonTensors;
}

std::span<const Number> common_numbers() {
  return kCommonNumbers;
}

}  // namespace lockstep::hub
