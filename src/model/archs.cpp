#include "model/archs.h"

#include <algorithm>

namespace lockstep::model {
namespace {

using A = Architecture;
constexpr auto kLayer = op::Norm::Kind::kLayer;
constexpr auto kHalves = A::Positions::kRopeHalves;
constexpr auto kRequired = A::Bias::kRequired;
constexpr auto kGeluTanh = op::Activate::Kind::kGeluTanh;

constexpr Architecture kArchitectures[] = {
    {.name = "gpt2",
     .norm = kLayer,
     .qkv_bias = kRequired,
     .other_biases = kRequired,
     .norm_bias = kRequired,
     .fused_qkv = true,
     .feed_forward = A::FeedForward::kPlain,
     .activation = kGeluTanh,
     .positions = A::Positions::kLearned},
    {.name = "llama"},
    {.name = "qwen2", .qkv_bias = kRequired, .positions = kHalves},
    {.name = "qwen3", .query_norms = A::QueryNorms::kHeads, .positions = kHalves},
    {.name = "phi3",
     .fused_qkv = true,
     .feed_forward = A::FeedForward::kGatedFused,
     .positions = kHalves},
    {.name = "granite", .scales = true},
    {.name = "qwen2moe",
     .qkv_bias = kRequired,
     .experts = true,
     .normalized_experts = false,
     .shared_expert = true,
     .shared_gate = true,
     .positions = kHalves},
    {.name = "qwen3moe",
     .query_norms = A::QueryNorms::kHeads,
     .experts = true,
     .positions = kHalves},
    {.name = "olmoe",
     .query_norms = A::QueryNorms::kRows,
     .experts = true,
     .normalized_experts = false,
     .positions = kHalves},
    {.name = "granitemoe", .experts = true, .scales = true},
    {.name = "gpt-oss",
     .norms = A::Norms::kBeforeRenamed,
     .qkv_bias = kRequired,
     .other_biases = kRequired,
     .activation = op::Activate::Kind::kClampedSwish,
     .experts = true,
     .expert_biases = kRequired,
     .positions = kHalves,
     .window_period = 2,
     .yarn_whole_pairs = false,
     .sinks = true},
    {.name = "deepseek2",
     .qkv_bias = A::Bias::kNone,
     .other_biases = A::Bias::kNone,
     .latent = true,
     .experts = true,
     .normalized_experts = false,
     .shared_expert = true},
    {.name = "gemma2",
     .norms = A::Norms::kBoth,
     .activation = kGeluTanh,
     .positions = kHalves,
     .window = 4096,
     .window_period = 2,
     .score_cap = 50,
     .logit_cap = 30,
     .layers_scaled_by_width = 46,
     .embedding_by_root = true},
    {.name = "gemma3",
     .norms = A::Norms::kBoth,
     .query_norms = A::QueryNorms::kHeads,
     .activation = kGeluTanh,
     .positions = kHalves,
     .window_period = 6,
     .windowed_rope_scaled = false,
     .windowed_rope_base = 10000,
     .layers_scaled_by_width = 62,
     .embedding_by_root = true},
    {.name = "olmo2",
     .norms = A::Norms::kAfter,
     .query_norms = A::QueryNorms::kRows,
     .positions = kHalves,
     .window_period = 4,
     .windowed_rope_scaled = false},
    {.name = "smollm3", .unrotated_period = 4},
    {.name = "glm4", .norms = A::Norms::kBoth, .feed_forward = A::FeedForward::kGatedFused},
    {.name = "stablelm",
     .norm = kLayer,
     .norms = A::Norms::kBeforeOrShared,
     .query_norms = A::QueryNorms::kOwnHeadsIfPresent,
     .norm_bias = kRequired,
     .positions = kHalves},
    {.name = "phi2",
     .norm = kLayer,
     .norms = A::Norms::kShared,
     .qkv_bias = kRequired,
     .other_biases = kRequired,
     .norm_bias = kRequired,
     .output_bias = kRequired,
     .feed_forward = A::FeedForward::kPlain,
     .activation = kGeluTanh,
     .positions = kHalves},
    {.name = "starcoder2",
     .norm = kLayer,
     .qkv_bias = kRequired,
     .other_biases = kRequired,
     .norm_bias = kRequired,
     .feed_forward = A::FeedForward::kPlain,
     .activation = kGeluTanh,
     .positions = kHalves},
};

}  // namespace

std::span<const Architecture> architectures() {
  return kArchitectures;
}

const Architecture* find_architecture(std::string_view name) {
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  return found != std::end(kArchitectures) ? found : nullptr;
}

}  // namespace lockstep::model
