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
constexpr TensorNames kDeepseekTensors = {
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_k_b", Change::kKeysOfHeads},
    {"self_attn.kv_b_proj", "attn_v_b", Change::kValuesOfHeads},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.experts.*.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.*.up_proj", "ffn_up_exps"},
    {"mlp.experts.*.down_proj", "ffn_down_exps"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    LS_JOINED_EXPERTS,
};
#undef LS_JOINED_EXPERTS
// Gate and up of gpt-oss take turns. Its experts are stored in four bits, as blocks of 32 numbers
// and their scales, or as numbers in columns.
constexpr TensorNames kGptOssTensors = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.router", "ffn_gate_inp"},
    {"mlp.experts.gate_up_proj_blocks", "ffn_gate_exps.weight", Change::kEvenRows},
    {"mlp.experts.gate_up_proj_blocks", "ffn_up_exps.weight", Change::kOddRows},
    {"mlp.experts.down_proj_blocks", "ffn_down_exps.weight"},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", Change::kTransposeEven},
    {"mlp.experts.gate_up_proj", "ffn_up_exps.weight", Change::kTransposeOdd},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", Change::kTranspose},
    {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", Change::kEvenRows},
    {"mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias", Change::kOddRows},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
};
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
    {.hub = "vocab_size", .gguf = "vocab_size", .required = false},
};
constexpr Numbers kHeadNumbers = {
    {.hub = "num_key_value_heads", .gguf = "attention.head_count_kv", .required = false},
    {.hub = "head_dim", .gguf = "attention.key_length", .required = false},
    {.hub = "head_dim", .gguf = "attention.value_length", .required = false},
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
     .required = false,
     .may_be_zero = true},  // then there is no such expert
};
constexpr Numbers kGptOssNumbers = {
    {"rms_norm_eps", kRmsEpsilon, kReal},
    {.hub = "num_local_experts", .gguf = "expert_count", .other = "num_experts"},
    {.hub = "num_experts_per_tok", .gguf = "expert_used_count", .other = "experts_per_token"},
    {"intermediate_size", "expert_feed_forward_length"},
};
constexpr Numbers kDeepseekNumbers = {
    {"rms_norm_eps", kRmsEpsilon, kReal},
    {.hub = "q_lora_rank", .gguf = "attention.q_lora_rank", .required = false},
    {.hub = "n_routed_experts", .gguf = "expert_count", .other = "num_experts"},
    {"num_experts_per_tok", "expert_used_count"},
    {"n_shared_experts", "expert_shared_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {.hub = "first_k_dense_replace", .gguf = "leading_dense_block_count", .may_be_zero = true},
    {"routed_scaling_factor", "expert_weights_scale", kReal},
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
// Of another cap, which config.json may have, transformers makes nothing.
constexpr Numbers kGemma3Numbers = {
    {"rms_norm_eps", kRmsEpsilon, kReal},
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
constexpr Defaults kGptOssDefaults = {{"max_position_embeddings", 131072},
                                      {"rms_norm_eps", 1e-5},
                                      {"num_key_value_heads", 8},
                                      {"head_dim", 64},
                                      {"num_local_experts", 128},
                                      {"num_experts_per_tok", 4},
                                      {"sliding_window", 128}};
constexpr Defaults kDeepseek2Defaults = {{"max_position_embeddings", 2048},
                                         {"rms_norm_eps", 1e-6},
                                         {"kv_lora_rank", 512},
                                         {"q_lora_rank", 1536},
                                         {"qk_nope_head_dim", 128},
                                         {"qk_rope_head_dim", 64},
                                         {"v_head_dim", 128},
                                         {"n_routed_experts", 64},
                                         {"n_shared_experts", 2},
                                         {"moe_intermediate_size", 1407},
                                         {"first_k_dense_replace", 0},
                                         {"routed_scaling_factor", 1}};
constexpr Defaults kDeepseek3Defaults = {{"max_position_embeddings", 4096},
                                         {"rms_norm_eps", 1e-6},
                                         {"kv_lora_rank", 512},
                                         {"q_lora_rank", 1536},
                                         {"qk_nope_head_dim", 128},
                                         {"qk_rope_head_dim", 64},
                                         {"v_head_dim", 128},
                                         {"n_routed_experts", 256},
                                         {"n_shared_experts", 1},
                                         {"num_experts_per_tok", 8},
                                         {"moe_intermediate_size", 2048},
                                         {"first_k_dense_replace", 3},
                                         {"routed_scaling_factor", 2.5},
                                         {"n_group", 8},
                                         {"topk_group", 4},
                                         {"num_nextn_predict_layers", 1}};
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
constexpr Demands kGptOssDemands = {{"hidden_act", R"("silu" "swish")"},
                                    {"swiglu_alpha", "1.702"},
                                    {"swiglu_limit", "7.0 7"},
                                    {"attention_bias", "true"}};
constexpr Flags kDeepseek3Flags = {{"norm_topk_prob", "expert_weights_norm", true, false}};
constexpr Demands kDeepseek2Demands = {{"hidden_act", R"("silu" "swish")"},
                                       {"attention_bias", "false"},
                                       {"mlp_bias", "false"},
                                       {"moe_layer_freq", "1"},
                                       {"norm_topk_prob", "false"},
                                       {"scoring_func", R"("softmax")"},
                                       {"topk_method", R"("greedy" "group_limited_greedy")"}};
constexpr Demands kDeepseek3Demands = {{"hidden_act", R"("silu" "swish")"},
                                       {"attention_bias", "false"},
                                       {"moe_layer_freq", "1"},
                                       {"rope_interleave", "true"},
                                       {"scoring_func", R"("sigmoid")"},
                                       {"topk_method", R"("noaux_tc")"}};
constexpr Demands kOlmoeDemands = {{"hidden_act", R"("silu" "swish")"}, {"clip_qkv", "null"}};

#define LS_GELU R"("gelu_pytorch_tanh" "gelu_new")"
constexpr Demands kSilu = {{"hidden_act", R"("silu" "swish")"}};
constexpr Demands kStarcoder2Demands = {{"hidden_act", LS_GELU}, {"use_bias", "true"}};
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
     .demands = kSilu,
     .sees_all = true},
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
     .demands = kSilu,
     .sees_all = true},
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
     .numbers = kGemma3Numbers,
     .defaults = kGemma3Defaults,
     .demands = kGemmaDemands,
     .tied = true,
     .rope_base = 1000000,
     .own_windowed_rope = true,
     .windowed_rope_base = 10000,
     .root_of_head = true,
     .scaled_by_width = 62,
     .always_window = true,
     .window_period = 6},
    {.model_type = "olmo2",
     .architecture = "olmo2",
     .tensors = kOlmo2Tensors,
     .numbers = kRmsNumbers,
     .defaults = kOlmo2Defaults,
     .demands = kSilu,
     .sees_all = true},
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
     .rotary_part = 0.5,
     .sees_all = true},
    {.model_type = "stablelm",
     .architecture = "stablelm",
     .head_norms = true,
     .numbers = kLayerNormNumbers,
     .defaults = kStablelmDefaults,
     .demands = kSilu,
     .rotary_part = 0.25,
     .may_be_parallel = true,
     .sees_all = true},
    {.model_type = "phi",
     .architecture = "phi2",
     .tensors = kPhi2Tensors,
     .numbers = kLayerNormNumbers,
     .defaults = kPhi2Defaults,
     .demands = kPhi2Demands,
     .rotary_part = 0.5,
     .sees_all = true},
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
     .demands = kOlmoeDemands,
     .sees_all = true},
    {.model_type = "granitemoe",
     .architecture = "granitemoe",
     .tensors = kGraniteMoeTensors,
     .numbers = kGraniteMoeNumbers,
     .defaults = kGraniteMoeDefaults,
     .demands = kSilu,
     .sees_all = true},
    {.model_type = "granitemoeshared",
     .architecture = "granitemoe",
     .tensors = kGraniteMoeTensors,
     .numbers = kGraniteMoeNumbers,
     .defaults = kGraniteMoeDefaults,
     .demands = kSilu,
     .sees_all = true},
    {.model_type = "gpt_oss",
     .architecture = "gpt-oss",
     .tensors = kGptOssTensors,
     .numbers = kGptOssNumbers,
     .defaults = kGptOssDefaults,
     .demands = kGptOssDemands,
     .rope_base = 150000,
     .rope_needed = true,
     .yarn_whole_pairs = false,
     .always_window = true,
     .window_period = 2},
    {.model_type = "deepseek_v2",
     .architecture = "deepseek2",
     .tensors = kDeepseekTensors,
     .numbers = kDeepseekNumbers,
     .defaults = kDeepseek2Defaults,
     .demands = kDeepseek2Demands,
     .latent = true,
     .sees_all = true},
    {.model_type = "deepseek_v3",
     .architecture = "deepseek2",
     .tensors = kDeepseekTensors,
     .numbers = kDeepseekNumbers,
     .flags = kDeepseek3Flags,
     .defaults = kDeepseek3Defaults,
     .demands = kDeepseek3Demands,
     .latent = true,
     .sigmoid_experts = true,
     .sees_all = true},
    {.model_type = "starcoder2",
     .architecture = "starcoder2",
     .tensors = kStarcoder2Tensors,
     .numbers = kStarcoder2Numbers,
     .defaults = kStarcoder2Defaults,
     .demands = kStarcoder2Demands,
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

std::span<const Number> head_numbers() {
  return kHeadNumbers;
}

}  // namespace lockstep::hub
