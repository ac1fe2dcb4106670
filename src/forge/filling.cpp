#include "forge/filling.h"

#include <cmath>

#include "forge/metadata.h"

namespace lockstep::forge {
namespace {

constexpr double kLogitDeviation = 2.5;
constexpr double kScoreDeviation = 2;
constexpr double kRouterDeviation = 1.5;  // experts differ, and several count
constexpr double kNormSpread = 0.1;       // of norm weights around their mean
constexpr double kBiasDeviation = 0.1;

// Queries and keys share what brings q · k times the attention scale to its deviation.
double query_gain(const model::Config& config) {
  return std::sqrt(kScoreDeviation /
                   (config.attention_scale * std::sqrt(static_cast<double>(config.head_size))));
}

// All branches together add about 1 to the stream's variance.
double branch_gain(const model::Config& config) {
  return 1 / (config.residual_scale * std::sqrt(2 * static_cast<double>(config.layers)));
}

// Undoes what the weights of the chosen experts take from the sum of their results. About: the
// largest of many normal numbers stand close to each other.
double mix_gain(const model::Config& config) {
  const auto used = static_cast<double>(config.experts.used);
  if (config.experts.normalize) return std::sqrt(used) / config.experts.scale;
  return std::sqrt(static_cast<double>(config.experts.count)) / config.experts.scale;
}

// The embedding enters the stream smaller than what the branches add; otherwise the logit of the
// token itself would win everywhere where the output matrix is the embedding table.
double embedding_deviation(const model::Config& config) {
  return kLogitDeviation / (config.embedding_scale * std::sqrt(static_cast<double>(config.width)));
}

// Undoes what the embedding's scale takes from the logits where the two share a table.
double final_norm_gain(const model::Config& config) {
  return config.embedding_scale * config.logit_divisor;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  for (const std::string_view candidate : names)
    if (name == candidate) return true;
  return false;
}

}  // namespace

Filling filling_of(const gguf::TensorPlan& tensor, const Spec& spec, const model::Config& config) {
  const std::string_view full = tensor.name;
  if (full == "rope_freqs.weight") return {.fixed = shared_rope_factors(spec.rope_factors, config)};
  if (full == "rope_factors_long.weight") return {.fixed = long_rope_factors(config)};
  if (full == "rope_factors_short.weight") return {.fixed = short_rope_factors(config)};

  // "attn_q.weight" of "blk.11.attn_q.weight"
  std::string_view name = full;
  if (name.starts_with("blk.")) name = name.substr(name.find('.', 4) + 1);
  if (name.ends_with(".bias")) return {.deviation = kBiasDeviation};
  // As large as scores are: a sink that counts, beside keys that count.
  if (name == "attn_sinks.weight") return {.deviation = kScoreDeviation};
  if (name.ends_with("_norm.weight")) {
    const double mean = name == "output_norm.weight" ? final_norm_gain(config)
                        : is_one_of(name, {"attn_q_norm.weight", "attn_k_norm.weight"})
                            ? query_gain(config)
                            : 1;
    return {.mean = mean, .deviation = kNormSpread * mean};
  }
  if (is_one_of(name, {"token_embd.weight", "position_embd.weight", "output.weight"}))
    return {.deviation = embedding_deviation(config)};

  const double even = 1 / std::sqrt(static_cast<double>(tensor.dims[0]));
  // Keys of latent attention have no gain of their own: queries have both.
  if (config.arch->latent && is_one_of(name, {"attn_q.weight", "attn_q_b.weight"}))
    return {.deviation = even * query_gain(config) * query_gain(config)};
  if (name == "attn_k_b.weight")  // transposed
    return {.deviation = 1 / std::sqrt(static_cast<double>(tensor.dims[1]))};
  if (is_one_of(name, {"attn_q.weight", "attn_k.weight", "attn_qkv.weight"}))
    return {.deviation = even * query_gain(config)};
  if (is_one_of(name, {"attn_output.weight", "ffn_down.weight", "ffn_down_shexp.weight"}))
    return {.deviation = even * branch_gain(config)};
  if (name == "ffn_down_exps.weight")
    return {.deviation = even * branch_gain(config) * mix_gain(config)};
  if (name == "ffn_gate_inp.weight") return {.deviation = even * kRouterDeviation};
  return {.deviation = even};
}

}  // namespace lockstep::forge
