// Metadata by meaning: the numbers that the forward pass uses, from both files.
#include <algorithm>
#include <set>

#include "audit/keys.h"
#include "model/config.h"

namespace lockstep::audit {
namespace {

using model::Config;
using nlohmann::ordered_json;

bool always(const gguf::File&, const Config&) {
  return true;
}

// A key of the architecture, and what the forward pass takes where the file has none.
struct KeyMeaning {
  std::string_view key;
  ordered_json (*assumed)(const Config&);  // null: nothing can be assumed
  // Where neither file has it: whether it says anything about this model.
  bool (*matters)(const Config&) = [](const Config&) { return true; };
  // Whether the forward pass looks at it: converters write some keys for all models.
  bool (*used)(const gguf::File&, const Config&) = always;
};

bool has_rms_norms(const gguf::File&, const Config& c) {
  return c.arch->norm == op::Norm::Kind::kRms;
}
bool has_layer_norms(const gguf::File& file, const Config& c) {
  return !has_rms_norms(file, c);
}
bool extends_context(const gguf::File& file, const Config& c) {
  return c.rope.yarn.has_value() || file.tensor("rope_factors_long.weight") != nullptr;
}
// Whether a layer is parallel is told by its norms in all models that we know.
bool is_parallel_by_key(const gguf::File&, const Config&) {
  return false;
}
bool has_experts(const Config& c) {
  return c.experts.count > 0;
}

bool rotates(const Config& c) {
  return c.arch->positions != model::Architecture::Positions::kLearned;
}
bool has_yarn(const Config& c) {
  return c.rope.yarn.has_value();
}
bool has_window(const Config& c) {
  return c.window > 0;
}
bool has_scales(const Config& c) {
  return c.arch->scales;
}
bool never(const Config&) {
  return false;
}

ordered_json windowed_layers(const Config& c) {
  ordered_json out = ordered_json::array();
  for (int64_t layer = 0; layer < c.layers; ++layer) out.push_back(c.is_windowed(layer));
  return out;
}

std::string_view scaling_type(const Config& c) {
  if (c.rope.yarn) return "yarn";
  return c.rope.position_scale != 1 ? "linear" : "none";
}

ordered_json position_factor(const Config& c) {
  return c.rope.position_scale > 0 ? 1 / c.rope.position_scale : 1;
}

// GGUF's number of it.
ordered_json gating_function(const Config& c) {
  return c.experts.scoring == op::Scoring::kSigmoid ? 2 : 1;
}

constexpr KeyMeaning kMeanings[] = {
    {"block_count", nullptr},
    {"context_length", nullptr},
    {"embedding_length", nullptr},
    {"feed_forward_length", nullptr},
    {"attention.head_count", nullptr},
    {"attention.head_count_kv", [](const Config& c) { return ordered_json(c.kv_heads); }},
    {"attention.key_length", [](const Config& c) { return ordered_json(c.head_size); }},
    {"attention.value_length", [](const Config& c) { return ordered_json(c.value_size); }},
    {"attention.key_length_mla", [](const Config& c) { return ordered_json(c.head_size); }, never},
    {"attention.value_length_mla", [](const Config& c) { return ordered_json(c.value_size); },
     never},
    {"attention.q_lora_rank", [](const Config& c) { return ordered_json(c.latent.queries); },
     never},
    {.key = "attention.layer_norm_rms_epsilon", .assumed = nullptr, .used = has_rms_norms},
    {.key = "attention.layer_norm_epsilon", .assumed = nullptr, .used = has_layer_norms},
    {"attention.scale", [](const Config& c) { return ordered_json(c.attention_scale); }},
    {"attention.sliding_window", [](const Config& c) { return ordered_json(c.window); },
     has_window},
    {"attention.sliding_window_pattern", windowed_layers, has_window},
    {.key = "use_parallel_residual", .assumed = nullptr, .used = is_parallel_by_key},
    {"attn_logit_softcapping", [](const Config& c) { return ordered_json(c.score_cap); },
     [](const Config& c) { return c.score_cap > 0; }},
    {"final_logit_softcapping", [](const Config& c) { return ordered_json(c.logit_cap); },
     [](const Config& c) { return c.logit_cap > 0; }},
    {"embedding_scale", [](const Config& c) { return ordered_json(c.embedding_scale); },
     [](const Config& c) { return c.embedding_scale != 1; }},
    {"residual_scale", [](const Config& c) { return ordered_json(c.residual_scale); }, has_scales},
    {"logit_scale", [](const Config& c) { return ordered_json(c.logit_divisor); }, has_scales},
    {"rope.dimension_count", [](const Config& c) { return ordered_json(c.rope.dims); }, rotates},
    {"rope.freq_base", [](const Config& c) { return ordered_json(c.rope.base); }, rotates},
    {"rope.freq_base_swa", [](const Config& c) { return ordered_json(c.windowed_rope.base); },
     has_window},
    {"rope.scaling.type", [](const Config& c) { return ordered_json(scaling_type(c)); }, rotates},
    {"rope.scaling.factor", position_factor, rotates},
    {"rope.scaling.attn_factor", [](const Config& c) { return ordered_json(c.rope.magnitude); },
     rotates},
    {"rope.scaling.original_context_length",
     [](const Config& c) { return ordered_json(c.rope_original_context); }, has_yarn,
     extends_context},
    {"rope.scaling.yarn_beta_fast",
     [](const Config& c) { return ordered_json(c.rope.yarn ? c.rope.yarn->beta_fast : 32.0); },
     has_yarn},
    {"rope.scaling.yarn_beta_slow",
     [](const Config& c) { return ordered_json(c.rope.yarn ? c.rope.yarn->beta_slow : 1.0); },
     has_yarn},
    {"expert_count", [](const Config&) { return ordered_json(0); }, never},
    {"expert_used_count", [](const Config&) { return ordered_json(0); }, never},
    {"expert_feed_forward_length",
     [](const Config& c) { return ordered_json(c.experts.feed_forward); }, has_experts},
    {"expert_shared_feed_forward_length",
     [](const Config& c) { return ordered_json(c.experts.shared_feed_forward); }, never},
    {"expert_gating_func", gating_function, has_experts},
    {"expert_weights_norm", [](const Config& c) { return ordered_json(c.experts.normalize); },
     has_experts},
    {"expert_weights_scale", [](const Config& c) { return ordered_json(c.experts.scale); },
     has_experts},
    {"expert_group_count", [](const Config& c) { return ordered_json(c.experts.groups); }, never},
    {"expert_group_used_count", [](const Config& c) { return ordered_json(c.experts.groups_used); },
     never},
    {"leading_dense_block_count",
     [](const Config& c) { return ordered_json(c.experts.dense_layers); }, never},
    {"vocab_size", [](const Config& c) { return ordered_json(c.vocabulary); }, never},
};

// Keys that say nothing about the numbers: old spellings, which the meanings above have, and notes.
constexpr std::string_view kIgnored[] = {"rope.scale_linear", "rope.scaling.finetuned",
                                         "tensor_data_layout"};

struct ReadFile {
  const gguf::File& file;
  std::string arch;
  Config config;

  explicit ReadFile(const gguf::File& f) : file(f) {
    const auto name = f.text("general.architecture");
    if (name.ok()) arch = *name;
    std::vector<std::string> problems;  // 'lockstep inspect' tells them
    config = model::read_config(f, problems);
  }

  std::string key(std::string_view suffix) const { return fmt::format("{}.{}", arch, suffix); }
  ordered_json value(std::string_view suffix) const { return value_of(file, key(suffix)); }
  ordered_json assumed(const KeyMeaning& meaning) const {
    if (meaning.assumed == nullptr || config.arch == nullptr) return nullptr;
    return meaning.assumed(config);
  }
  bool uses(const KeyMeaning& meaning) const {
    return config.arch == nullptr || meaning.used(file, config);
  }
  bool matters(const KeyMeaning& meaning) const {
    return config.arch != nullptr && meaning.assumed != nullptr && meaning.matters(config);
  }
};

// The window's layers may be given as a list or as a period: what comes of it counts.
bool same_windows(const ReadFile& a, const ReadFile& b) {
  return a.config.arch != nullptr && b.config.arch != nullptr &&
         windowed_layers(a.config) == windowed_layers(b.config);
}

// Latent attention (DeepSeek): files that have the weight of keys and values in two tensors give
// the sizes of the short row under these keys, and those of the heads under keys of their own.
bool is_latent_size(std::string_view key) {
  return key == "attention.head_count_kv" || key == "attention.key_length" ||
         key == "attention.value_length";
}
bool same_latent_heads(const ReadFile& a, const ReadFile& b) {
  const Config &x = a.config, &y = b.config;
  return x.arch != nullptr && x.arch == y.arch && x.arch->latent && x.head_size == y.head_size &&
         x.value_size == y.value_size && x.kv_heads == y.kv_heads &&
         x.latent.keys_values == y.latent.keys_values;
}

std::optional<KeyAudit> audit_meaning(const KeyMeaning& meaning, const ReadFile& a,
                                      const ReadFile& b) {
  KeyAudit row;
  row.key = a.key(meaning.key);
  row.a = a.value(meaning.key);
  row.b = b.value(meaning.key);
  if (row.a.is_null() && row.b.is_null() && !a.matters(meaning) && !b.matters(meaning))
    return std::nullopt;
  if (!a.uses(meaning) && !b.uses(meaning)) return std::nullopt;
  if (row.a.is_null()) row.assumed_a = a.assumed(meaning);
  if (row.b.is_null()) row.assumed_b = b.assumed(meaning);
  row.verdict = judge_key(row);
  if (meaning.assumed == windowed_layers && !row.fine() && same_windows(a, b))
    row.verdict = row.a.is_null() || row.b.is_null() ? KeyVerdict::kAssumed : KeyVerdict::kEqual;
  if (!row.fine() && is_latent_size(meaning.key) && same_latent_heads(a, b))
    row.verdict = row.a.is_null() || row.b.is_null() ? KeyVerdict::kAssumed : KeyVerdict::kEqual;
  return row;
}

// Keys of the architecture that we do not know: other engines may, so they must be the same.
void add_other_keys(const ReadFile& a, const ReadFile& b, std::vector<KeyAudit>& out) {
  std::set<std::string> seen(std::begin(kIgnored), std::end(kIgnored));
  for (const KeyMeaning& meaning : kMeanings) seen.insert(std::string(meaning.key));
  for (const ReadFile* side : {&a, &b}) {
    if (side->arch.empty()) continue;
    const std::string prefix = side->key("");
    for (const gguf::Entry& entry : side->file.metadata()) {
      if (!entry.key.starts_with(prefix)) continue;
      const std::string suffix = entry.key.substr(prefix.size());
      if (!seen.insert(suffix).second) continue;
      KeyAudit row;
      row.key = entry.key;
      row.a = a.value(suffix);
      row.b = b.value(suffix);
      row.verdict = judge_key(row);
      out.push_back(std::move(row));
    }
  }
}

}  // namespace

std::vector<KeyAudit> audit_metadata(const gguf::File& file_a, const gguf::File& file_b) {
  const ReadFile a(file_a), b(file_b);
  std::vector<KeyAudit> out;
  KeyAudit arch;
  arch.key = "general.architecture";
  arch.a = value_of(file_a, arch.key);
  arch.b = value_of(file_b, arch.key);
  arch.verdict = judge_key(arch);
  if (!arch.a.is_null() || !arch.b.is_null()) out.push_back(std::move(arch));
  for (const KeyMeaning& meaning : kMeanings)
    if (auto row = audit_meaning(meaning, a, b)) out.push_back(std::move(*row));
  add_other_keys(a, b, out);
  return out;
}

}  // namespace lockstep::audit
