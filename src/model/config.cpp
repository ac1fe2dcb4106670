#include "model/config.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/config_reader.h"
#include "op/rope.h"

namespace lockstep::model {
namespace {

op::Rope read_rope(ConfigReader& in, const Config& config) {
  op::Rope rope;
  rope.head_size = config.head_size;
  rope.pairing = config.arch->positions == Architecture::Positions::kRopeHalves
                     ? op::Rope::Pairing::kHalves
                     : op::Rope::Pairing::kAdjacent;
  rope.dims = in.count_or("rope.dimension_count", config.head_size);
  if (rope.dims > config.head_size || rope.dims % 2 != 0)
    in.problem(fmt::format("{} is {}; expected an even number up to the head size {}",
                           in.key("rope.dimension_count"), rope.dims, config.head_size));
  rope.base = in.real_or("rope.freq_base", 10000);
  if (rope.base <= 1)
    in.problem(fmt::format("{} is {}; expected more than 1", in.key("rope.freq_base"), rope.base));

  // Old files give a factor without a type: linear.
  const double old_factor = in.real_or("rope.scale_linear", 1);
  const double factor = in.real_or("rope.scaling.factor", old_factor);
  const std::string_view type =
      in.text_or("rope.scaling.type", factor != 1 && factor != 0 ? "linear" : "none");
  rope.magnitude = in.real_or("rope.scaling.attn_factor", 1);
  if (type == "linear" || type == "yarn") {
    if (factor <= 0)
      in.problem(
          fmt::format("{} is {}; expected more than 0", in.key("rope.scaling.factor"), factor));
    rope.position_scale = 1 / factor;
  } else if (type != "none" && type != "longrope") {
    in.problem(fmt::format("{} is '{}'; supported: none, linear, yarn, longrope",
                           in.key("rope.scaling.type"), type));
  }
  if (type == "yarn") {
    rope.yarn = op::Rope::Yarn{
        .beta_fast = in.real_or("rope.scaling.yarn_beta_fast", 32),
        .beta_slow = in.real_or("rope.scaling.yarn_beta_slow", 1),
        .original_context = config.rope_original_context,
        .whole_pairs = config.arch->yarn_whole_pairs,
    };
  }
  return rope;
}

// Latent attention has every head's own keys, whatever the file calls the number of key heads: it
// may count the short row as one. New files have that row's sizes under the old names.
void read_latent(ConfigReader& in, Config& config) {
  config.latent.keys_values = in.count("attention.kv_lora_rank");
  config.latent.queries = in.count_or("attention.q_lora_rank", 0, 0);
  config.kv_heads = config.heads;
  config.head_size = in.count_or("attention.key_length_mla", config.head_size);
  config.value_size = in.count_or("attention.value_length_mla", config.value_size);
  if (in.has("attention.temperature_scale"))
    in.problem(fmt::format("{} is not supported", in.key("attention.temperature_scale")));
}

// Its rotated numbers are a row of their own. Where the context is extended by YaRN, all scores are
// sharpened in place of the rotated numbers, by as much as the file says.
void adapt_to_latent(ConfigReader& in, Config& config) {
  op::Rope& rope = config.rope;
  if (rope.dims >= config.head_size)
    in.problem(fmt::format("{} is {}; expected less than the head size {}",
                           in.key("rope.dimension_count"), rope.dims, config.head_size));
  rope.head_size = rope.dims;
  constexpr std::string_view kKey = "rope.scaling.yarn_log_multiplier";
  if (!rope.yarn || !in.has(kKey)) return;
  const double growth = std::max(0.0, std::log(1 / rope.position_scale));
  const double sharpened = 1 + in.real_or(kKey, 0) * growth;
  config.attention_scale *= sharpened * sharpened;
  op::Rope plain = rope;
  plain.magnitude = 1;
  rope.magnitude /= op::rope_magnitude(plain);
}

// Layers with a window may have a base of their own, and no extension of the context.
op::Rope read_windowed_rope(ConfigReader& in, const Config& config) {
  op::Rope rope = config.rope;
  const double base = config.arch->windowed_rope_base;
  rope.base = in.real_or("rope.freq_base_swa", base > 0 ? base : rope.base);
  if (rope.base <= 1)
    in.problem(
        fmt::format("{} is {}; expected more than 1", in.key("rope.freq_base_swa"), rope.base));
  if (!config.arch->windowed_rope_scaled) {
    rope.position_scale = rope.magnitude = 1;
    rope.yarn.reset();
  }
  return rope;
}

// Which layers have the window: the file's list or period, or the architecture's.
void read_window(ConfigReader& in, Config& config) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  config.window = in.count_or("attention.sliding_window", config.arch->window, 0);
  if (in.is_array(kPattern)) {
    config.windowed = in.flags(kPattern, config.layers);
    return;
  }
  const int64_t period = in.count_or(kPattern, config.arch->window_period, 0);
  for (int64_t layer = 0; layer < config.layers && period != config.arch->window_period; ++layer)
    config.windowed.push_back(period == 0 || layer % period != period - 1);
}

// GGUF's numbers for functions of the router: the softmax of the chosen is that of all, normalized.
void read_scoring(ConfigReader& in, const Config& config, Experts& out) {
  constexpr int64_t kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3;
  constexpr std::string_view kKey = "expert_gating_func";
  const int64_t usual = config.arch->scoring == op::Scoring::kSoftmax ? kSoftmax : kSigmoid;
  // Old files have 0, which stands for nothing.
  int64_t found = in.count_or(kKey, usual, 0);
  if (found == 0) found = usual;
  if (found > kSoftmaxOfChosen)
    in.problem(
        fmt::format("{} is {}; supported: {} (softmax), {} (sigmoid), {} (softmax of those "
                    "that are chosen)",
                    in.key(kKey), found, kSoftmax, kSigmoid, kSoftmaxOfChosen));
  out.scoring = found == kSigmoid ? op::Scoring::kSigmoid : op::Scoring::kSoftmax;
  if (found == kSoftmaxOfChosen) out.normalize = true;
}

Experts read_experts(ConfigReader& in, const Config& config) {
  Experts out;
  out.count = in.count_or("expert_count", 0, 0);
  out.dense_layers = in.count_or("leading_dense_block_count", 0, 0);
  if (out.count == 0) {
    if (config.arch->experts && out.dense_layers < config.layers)
      in.problem(fmt::format("{} is not there or 0; expected a number of experts",
                             in.key("expert_count")));
    return out;
  }
  if (config.arch->feed_forward != Architecture::FeedForward::kGated) {
    in.problem(fmt::format("{} is {}; {} has no experts", in.key("expert_count"), out.count,
                           config.arch->name));
    return Experts{};
  }
  out.used = in.count("expert_used_count");
  if (out.used > out.count) {
    in.problem(fmt::format("{} is {}; expected at most {} = {}", in.key("expert_used_count"),
                           out.used, in.key("expert_count"), out.count));
    out.used = out.count;
  }
  out.feed_forward = in.count_or("expert_feed_forward_length", config.feed_forward);
  const int64_t shared = in.count_or("expert_shared_count", 0, 0);
  out.shared_feed_forward = in.count_or("expert_shared_feed_forward_length",
                                        std::min(shared * out.feed_forward, kLargestCount), 0);
  out.groups = std::max<int64_t>(1, in.count_or("expert_group_count", 1, 0));
  if (out.count % out.groups != 0) {
    in.problem(fmt::format("{} is {}; expected a divisor of {} = {}", in.key("expert_group_count"),
                           out.groups, in.key("expert_count"), out.count));
    out.groups = 1;
  }
  out.groups_used = in.count_or("expert_group_used_count", out.groups);
  if (out.groups_used > out.groups) {
    in.problem(fmt::format("{} is {}; expected at most {} = {}", in.key("expert_group_used_count"),
                           out.groups_used, in.key("expert_group_count"), out.groups));
    out.groups_used = out.groups;
  }
  if (out.count / out.groups * out.groups_used < out.used)
    in.problem(fmt::format("{} is {}; the groups that are used have {} experts",
                           in.key("expert_used_count"), out.used,
                           out.count / out.groups * out.groups_used));
  out.normalize = in.flag_or("expert_weights_norm", config.arch->normalized_experts);
  // 0 stands for a scale that a file's maker left out.
  const double scale = in.real_or("expert_weights_scale", 1);
  out.scale = scale == 0 ? 1 : scale;
  read_scoring(in, config, out);
  return out;
}

double cap(ConfigReader& in, std::string_view name, double otherwise) {
  const double found = in.real_or(name, otherwise);
  if (found < 0) in.problem(fmt::format("{} is {}; expected 0 or more", in.key(name), found));
  return found;
}

}  // namespace

bool Config::is_windowed(int64_t layer) const {
  if (window == 0) return false;
  if (!windowed.empty()) return windowed[static_cast<size_t>(layer)];
  return arch->window_period == 0 || layer % arch->window_period != arch->window_period - 1;
}

bool Config::is_rotated(int64_t layer) const {
  if (arch->positions == Architecture::Positions::kLearned) return false;
  return arch->unrotated_period == 0 ||
         layer % arch->unrotated_period != arch->unrotated_period - 1;
}

Config read_config(const gguf::File& file, std::vector<std::string>& problems) {
  Config config;
  const Result<std::string_view> name = file.text("general.architecture");
  if (!name.ok()) {
    problems.push_back(name.error().message);
    return config;
  }
  config.arch = find_architecture(*name);
  if (config.arch == nullptr) {
    std::string known;
    for (const Architecture& arch : architectures())
      known += fmt::format("{}{}", known.empty() ? "" : ", ", arch.name);
    problems.push_back(
        fmt::format("architecture '{}' is not supported; supported: {}", *name, known));
    return config;
  }

  ConfigReader in(file, *name, problems);
  config.layers = in.count("block_count");
  config.width = in.count("embedding_length");
  config.heads = in.count("attention.head_count");
  config.kv_heads = in.count_or("attention.head_count_kv", config.heads);
  config.feed_forward = in.count("feed_forward_length");
  config.context_length = in.count("context_length");
  if (config.heads % config.kv_heads != 0)
    in.problem(fmt::format("{} is {}; expected a divisor of {} = {}",
                           in.key("attention.head_count_kv"), config.kv_heads,
                           in.key("attention.head_count"), config.heads));
  if (!in.has("attention.key_length") && config.width % config.heads != 0)
    in.problem(fmt::format("{} is {}; expected a multiple of {} = {}, or {}",
                           in.key("embedding_length"), config.width, in.key("attention.head_count"),
                           config.heads, in.key("attention.key_length")));
  config.head_size = in.count_or("attention.key_length", config.width / config.heads);
  config.value_size = in.count_or("attention.value_length", config.head_size);
  if (config.arch->latent) read_latent(in, config);
  config.norm_epsilon =
      in.real(config.arch->norm == op::Norm::Kind::kRms ? "attention.layer_norm_rms_epsilon"
                                                        : "attention.layer_norm_epsilon");
  if (config.norm_epsilon < 0) in.problem(fmt::format("norm epsilon is {}", config.norm_epsilon));
  read_window(in, config);

  const bool by_width = config.layers == config.arch->layers_scaled_by_width;
  const double usual_scale =
      1 / std::sqrt(static_cast<double>(by_width ? config.width / config.heads : config.head_size));
  config.attention_scale = usual_scale;
  config.score_cap = cap(in, "attn_logit_softcapping", config.arch->score_cap);
  config.logit_cap = cap(in, "final_logit_softcapping", config.arch->logit_cap);
  if (config.arch->embedding_by_root)
    config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  if (config.arch->scales) {
    config.embedding_scale = in.real_or("embedding_scale", 1);
    config.residual_scale = in.real_or("residual_scale", 1);
    config.attention_scale = in.real_or("attention.scale", usual_scale);
    config.logit_divisor = in.real_or("logit_scale", 1);
    if (config.logit_divisor == 0)
      in.problem(fmt::format("{} is 0; logits are divided by it", in.key("logit_scale")));
  }
  config.rope_original_context =
      in.count_or("rope.scaling.original_context_length", config.context_length);
  if (config.arch->positions != Architecture::Positions::kLearned) {
    config.rope = read_rope(in, config);
    if (config.arch->latent) adapt_to_latent(in, config);
    config.windowed_rope = read_windowed_rope(in, config);
  }
  config.experts = read_experts(in, config);

  // The vocabulary's size is what the embedding table has, padding included.
  if (const gguf::Tensor* table = file.tensor("token_embd.weight");
      table != nullptr && table->dims.size() == 2)
    config.vocabulary = table->dims[1];
  return config;
}

}  // namespace lockstep::model
