#include "forge/metadata.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/ranges.h>

#include "gguf/file.h"
#include "gguf/writer.h"

namespace lockstep::forge {
namespace {

// More layers than any model has; keeps a typing mistake from planning for hours.
constexpr int64_t kMostLayers = 10000;

// Collects entries; those of the architecture get its name in front.
class Entries {
 public:
  explicit Entries(std::string arch) : arch_(std::move(arch)) {}

  template <class T>
  void general(std::string_view key, T value) {
    entries_.push_back({std::string(key), gguf::Value{std::move(value)}});
  }
  void count(std::string_view key, int64_t value) { own(key, static_cast<uint32_t>(value)); }
  void real(std::string_view key, double value) { own(key, static_cast<float>(value)); }
  void flag(std::string_view key, bool value) { own(key, value); }
  void text(std::string_view key, std::string value) { own(key, std::move(value)); }

  std::vector<gguf::Entry> take() { return std::move(entries_); }

 private:
  template <class T>
  void own(std::string_view key, T value) {
    general(fmt::format("{}.{}", arch_, key), std::move(value));
  }

  std::string arch_;
  std::vector<gguf::Entry> entries_;
};

// What the metadata cannot say, since its numbers have no room for it.
Result<void> check_ranges(const Spec& spec) {
  const std::pair<const char*, int64_t> counts[] = {
      {"layers", spec.layers},         {"width", spec.width},
      {"heads", spec.heads},           {"feed-forward size", spec.feed_forward},
      {"vocabulary", spec.vocabulary}, {"context", spec.context}};
  for (const auto& [what, count] : counts)
    if (count < 1 || count > INT32_MAX)
      return error("{}: found {}, expected 1 to {}", what, count, INT32_MAX);
  const std::pair<const char*, int64_t> options[] = {
      {"KV heads", spec.kv_heads},
      {"head size", spec.head_size},
      {"value size", spec.value_size},
      {"window", spec.window},
      {"experts", spec.experts},
      {"experts used", spec.experts_used},
      {"expert size", spec.expert_feed_forward},
      {"shared expert size", spec.shared_feed_forward},
      {"latent size", spec.latent},
      {"query latent size", spec.query_latent},
      {"dense layers", spec.dense_layers},
      {"expert groups", spec.expert_groups},
      {"expert groups used", spec.expert_groups_used},
      {"rope dimensions", spec.rope_dims}};
  for (const auto& [what, count] : options)
    if (count < 0 || count > INT32_MAX)
      return error("{}: found {}, expected 0 or more", what, count);
  if (spec.layers > kMostLayers)
    return error("layers: found {}, expected at most {}", spec.layers, kMostLayers);
  if (spec.epsilon <= 0) return error("epsilon: found {}, expected more than 0", spec.epsilon);
  if (const int64_t tokens = token_count(spec.tokenizer); tokens > spec.vocabulary)
    return error("vocabulary: found {}, expected at least the tokenizer's {} tokens",
                 spec.vocabulary, tokens);
  return {};
}

Result<void> check_rope(const Spec& spec, const model::Architecture& arch) {
  const bool extended = spec.rope_factors.kind != RopeFactors::Kind::kNone ||
                        spec.rope_scaling.kind != RopeScaling::Kind::kNone;
  if (!extended) return {};
  if (arch.positions == model::Architecture::Positions::kLearned)
    return error("{} has no rotation: rope factors and scaling have no place in it", arch.name);
  if (spec.rope_factors.kind != RopeFactors::Kind::kNone &&
      (spec.rope_factors.original_context < 1 || !(spec.rope_factors.factor >= 1)))
    return error("rope factors: found factor {} and original context {}, expected 1 or more",
                 spec.rope_factors.factor, spec.rope_factors.original_context);
  if (spec.rope_scaling.kind != RopeScaling::Kind::kNone && !(spec.rope_scaling.factor > 0))
    return error("rope scaling: found factor {}, expected more than 0", spec.rope_scaling.factor);
  if (spec.rope_scaling.kind == RopeScaling::Kind::kYarn && spec.rope_scaling.original_context < 1)
    return error("rope scaling: found original context {}, expected 1 or more",
                 spec.rope_scaling.original_context);
  if (spec.rope_factors.kind == RopeFactors::Kind::kLongShort &&
      spec.rope_scaling.kind != RopeScaling::Kind::kNone)
    return error("long and short rope factors are a rope scaling of their own: choose one");
  return {};
}

Result<void> check_scales(const Spec& spec, const model::Architecture& arch) {
  const bool scaled = spec.embedding_scale != 1 || spec.residual_scale != 1 ||
                      spec.attention_scale != 0 || spec.logit_scale != 1;
  if (scaled && !arch.scales)
    return error("{} has no embedding, residual, attention or logit scale", arch.name);
  for (const double scale : {spec.embedding_scale, spec.residual_scale, spec.logit_scale})
    if (!(scale > 0)) return error("scales: found {}, expected more than 0", scale);
  if (!(spec.attention_scale >= 0))
    return error("attention scale: found {}, expected more than 0", spec.attention_scale);
  return {};
}

// Small numbers for what a mixture of experts must have and nobody asked for.
Spec with_experts(Spec spec, const model::Architecture& arch) {
  if (!arch.experts) return spec;
  if (spec.experts == 0) spec.experts = 8;
  if (spec.experts_used == 0) spec.experts_used = std::min<int64_t>(2, spec.experts);
  if (arch.shared_expert && spec.shared_feed_forward == 0)
    spec.shared_feed_forward = arch.shared_gate || spec.expert_feed_forward == 0
                                   ? spec.feed_forward
                                   : spec.expert_feed_forward;
  return spec;
}

// The same for latent attention.
Spec with_latent(Spec spec, const model::Architecture& arch) {
  if (!arch.latent) return spec;
  if (spec.head_size == 0) spec.head_size = spec.width / std::max<int64_t>(1, spec.heads);
  if (spec.value_size == 0) spec.value_size = spec.head_size;
  if (spec.rope_dims == 0) spec.rope_dims = spec.head_size / 4 * 2;
  if (spec.latent == 0) spec.latent = spec.width;
  return spec;
}

Result<void> check_latent(const Spec& spec, const model::Architecture& arch) {
  if (!arch.latent && (spec.latent != 0 || spec.query_latent != 0))
    return error("{} has no latent attention", arch.name);
  if (spec.rope_scaling.sharpening != 0 && !arch.latent)
    return error("{} does not sharpen its scores: rope scaling takes two numbers", arch.name);
  return {};
}

// Where the short row counts as one head, as files of today have it.
void add_latent(const Spec& spec, Entries& out) {
  if (spec.query_latent != 0) out.count("attention.q_lora_rank", spec.query_latent);
  out.count("attention.kv_lora_rank", spec.latent);
  out.count("attention.key_length", spec.latent + spec.rope_dims);
  out.count("attention.value_length", spec.latent);
  out.count("attention.key_length_mla", spec.head_size);
  out.count("attention.value_length_mla", spec.value_size);
}

Result<void> check_experts(const Spec& spec) {
  if (spec.experts == 0) {
    if (spec.experts_used != 0 || spec.expert_feed_forward != 0 || spec.shared_feed_forward != 0 ||
        spec.expert_groups != 0 || spec.expert_groups_used != 0 || spec.dense_layers != 0 ||
        spec.sigmoid_experts || spec.expert_scale != 1)
      return error("sizes of experts: found some, but no number of experts");
    return {};
  }
  if (spec.experts_used < 1 || spec.experts_used > spec.experts)
    return error("experts used: found {}, expected 1 to {}", spec.experts_used, spec.experts);
  if (!(spec.expert_scale > 0))
    return error("expert scale: found {}, expected more than 0", spec.expert_scale);
  return {};
}

void add_experts(const Spec& spec, const model::Architecture& arch, Entries& out) {
  out.count("expert_count", spec.experts);
  out.count("expert_used_count", spec.experts_used);
  // Engines do not agree on what holds without it.
  const int64_t size = spec.expert_feed_forward != 0 ? spec.expert_feed_forward : spec.feed_forward;
  out.count("expert_feed_forward_length", size);
  // Shared experts without a gate are counted; together they are one.
  const bool counted = arch.shared_expert && !arch.shared_gate;
  if (counted && spec.shared_feed_forward % size == 0)
    out.count("expert_shared_count", spec.shared_feed_forward / size);
  else if (spec.shared_feed_forward != 0)
    out.count("expert_shared_feed_forward_length", spec.shared_feed_forward);
  if (spec.dense_layers != 0) out.count("leading_dense_block_count", spec.dense_layers);
  if (spec.expert_groups != 0) out.count("expert_group_count", spec.expert_groups);
  if (spec.expert_groups_used != 0) out.count("expert_group_used_count", spec.expert_groups_used);
  if (spec.expert_scale != 1) out.real("expert_weights_scale", spec.expert_scale);
  constexpr int64_t kSigmoid = 2;
  if (spec.sigmoid_experts) {
    out.count("expert_gating_func", kSigmoid);
    out.flag("expert_weights_norm", true);
  }
}

// The factor of rotated numbers that makes up for attention spread over a longer context.
double long_context_magnitude(const Spec& spec) {
  const auto original = static_cast<double>(spec.rope_factors.original_context);
  const double scale = static_cast<double>(spec.context) / original;
  return scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(original)) : 1;
}

void add_rope(const Spec& spec, int64_t head_size, Entries& out) {
  out.count("rope.dimension_count", spec.rope_dims != 0 ? spec.rope_dims : head_size);
  out.real("rope.freq_base", spec.rope_base);
  if (spec.rope_factors.kind == RopeFactors::Kind::kLongShort) {
    out.text("rope.scaling.type", "longrope");
    out.count("rope.scaling.original_context_length", spec.rope_factors.original_context);
    out.real("rope.scaling.attn_factor", long_context_magnitude(spec));
  }
  if (spec.rope_scaling.kind != RopeScaling::Kind::kNone) {
    const bool yarn = spec.rope_scaling.kind == RopeScaling::Kind::kYarn;
    out.text("rope.scaling.type", yarn ? "yarn" : "linear");
    out.real("rope.scaling.factor", spec.rope_scaling.factor);
    if (yarn) out.count("rope.scaling.original_context_length", spec.rope_scaling.original_context);
    if (spec.rope_scaling.sharpening != 0)
      out.real("rope.scaling.yarn_log_multiplier", 0.1 * spec.rope_scaling.sharpening);
  }
}

Result<const model::Architecture*> architecture_of(const Spec& spec) {
  const model::Architecture* arch = model::find_architecture(spec.arch);
  if (arch != nullptr) return arch;
  std::vector<std::string_view> names;
  for (const model::Architecture& known : model::architectures()) names.push_back(known.name);
  return error("architecture '{}' is not supported; supported: {}", spec.arch,
               fmt::join(names, ", "));
}

}  // namespace

Result<std::vector<gguf::Entry>> metadata_of(const Spec& asked) {
  LS_TRY(const model::Architecture* arch, architecture_of(asked));
  const Spec spec = with_latent(with_experts(asked, *arch), *arch);
  LS_TRY_VOID(check_ranges(spec));
  LS_TRY_VOID(check_rope(spec, *arch));
  LS_TRY_VOID(check_scales(spec, *arch));
  LS_TRY_VOID(check_experts(spec));
  LS_TRY_VOID(check_latent(spec, *arch));

  Entries out(spec.arch);
  out.general("general.architecture", spec.arch);
  out.general("general.type", std::string("model"));
  out.general("general.name", spec.name);
  out.general("general.description",
              fmt::format("forged by Lockstep: random weights from seed {}", spec.seed));
  out.count("block_count", spec.layers);
  out.count("context_length", spec.context);
  out.count("embedding_length", spec.width);
  out.count("feed_forward_length", spec.feed_forward);
  out.count("attention.head_count", spec.heads);
  out.count("attention.head_count_kv", arch->latent         ? 1
                                       : spec.kv_heads != 0 ? spec.kv_heads
                                                            : spec.heads);
  const int64_t head_size = spec.head_size != 0 ? spec.head_size : spec.width / spec.heads;
  // Only where they say something; without them, width / heads is checked to be whole.
  if (arch->latent) {
    add_latent(spec, out);
  } else if (spec.head_size != 0 || spec.value_size != 0) {
    out.count("attention.key_length", head_size);
    out.count("attention.value_length", spec.value_size != 0 ? spec.value_size : head_size);
  }
  out.real(arch->norm == op::Norm::Kind::kRms ? "attention.layer_norm_rms_epsilon"
                                              : "attention.layer_norm_epsilon",
           spec.epsilon);
  if (spec.experts != 0) add_experts(spec, *arch, out);
  if (spec.window != 0) out.count("attention.sliding_window", spec.window);
  if (arch->positions != model::Architecture::Positions::kLearned) add_rope(spec, head_size, out);
  if (arch->scales) {
    out.real("embedding_scale", spec.embedding_scale);
    out.real("residual_scale", spec.residual_scale);
    if (spec.attention_scale != 0) out.real("attention.scale", spec.attention_scale);
    out.real("logit_scale", spec.logit_scale);
  }
  // Other engines take the vocabulary's size from here where there are no tokens.
  out.count("vocab_size", spec.vocabulary);
  if (spec.tokenizer.empty()) out.general("tokenizer.ggml.model", std::string("none"));
  std::vector<gguf::Entry> entries = out.take();
  entries.insert(entries.end(), spec.tokenizer.begin(), spec.tokenizer.end());
  return entries;
}

Result<model::Config> config_of(const Spec& spec, std::span<const gguf::Entry> metadata) {
  const std::string bytes = gguf::file_without_tensors(metadata);
  LS_TRY(const gguf::File file, gguf::File::parse(std::as_bytes(std::span(bytes)), "the model"));
  std::vector<std::string> problems;
  model::Config config = model::read_config(file, problems);
  if (!problems.empty()) return error("these sizes make no model: {}", fmt::join(problems, "; "));
  config.vocabulary = spec.vocabulary;
  return config;
}

// Pairs that turn around many times within the original context keep their speed, those that do
// not even once are slowed by the whole factor, and those between by a mix.
std::vector<float> shared_rope_factors(const RopeFactors& factors, const model::Config& config) {
  constexpr double kFewTurns = 1, kManyTurns = 4;
  std::vector<float> divisors;
  for (int64_t pair = 0; pair < config.rope.dims / 2; ++pair) {
    const double frequency = std::pow(
        config.rope.base, -2 * static_cast<double>(pair) / static_cast<double>(config.rope.dims));
    const double turns =
        static_cast<double>(factors.original_context) * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - kFewTurns) / (kManyTurns - kFewTurns), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1 / (kept + (1 - kept) / factors.factor)));
  }
  return divisors;
}

namespace {

// From 1 for the fastest pair to `last` for the slowest, evenly in the logarithm.
std::vector<float> rising_factors(const model::Config& config, double last) {
  const int64_t pairs = config.rope.dims / 2;
  std::vector<float> factors;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const double part =
        static_cast<double>(pair) / static_cast<double>(std::max<int64_t>(pairs - 1, 1));
    factors.push_back(static_cast<float>(std::pow(last, part)));
  }
  return factors;
}

}  // namespace

// Published ones (Phi-3) were searched for; these have their range and trend.
std::vector<float> long_rope_factors(const model::Config& config) {
  const double scale = static_cast<double>(config.context_length) /
                       static_cast<double>(config.rope_original_context);
  return rising_factors(config, 2 * std::max(scale, 1.0));
}

std::vector<float> short_rope_factors(const model::Config& config) {
  return rising_factors(config, 2.75);
}

}  // namespace lockstep::forge
