#include "forge/known.h"

#include <algorithm>

namespace lockstep::forge {
namespace {

RopeFactors shared(double factor) {
  return {.kind = RopeFactors::Kind::kShared, .factor = factor, .original_context = 8192};
}

// The models' configurations as generally known; parameter totals are checked, other values were
// not compared with the published files. What a row leaves out is Spec's default.
std::vector<KnownModel> make_known_models() {
  std::vector<KnownModel> models;
  const auto add = [&](std::string_view name, int64_t parameters, Spec spec) {
    spec.name = name;
    models.push_back({name, std::move(spec), parameters});
  };
  add("gpt2", 124'439'808,
      {.arch = "gpt2",
       .layers = 12,
       .width = 768,
       .heads = 12,
       .feed_forward = 3072,
       .vocabulary = 50257,
       .context = 1024,
       .tied = true});
  add("smollm2-135m", 134'515'008,
      {.layers = 30,
       .width = 576,
       .heads = 9,
       .kv_heads = 3,
       .feed_forward = 1536,
       .vocabulary = 49152,
       .context = 8192,
       .rope_base = 100000,
       .tied = true});
  add("qwen2.5-0.5b", 494'032'768,
      {.arch = "qwen2",
       .layers = 24,
       .width = 896,
       .heads = 14,
       .kv_heads = 2,
       .feed_forward = 4864,
       .vocabulary = 151936,
       .context = 32768,
       .epsilon = 1e-6,
       .rope_base = 1e6,
       .tied = true});
  add("qwen2.5-1.5b", 1'543'714'304,
      {.arch = "qwen2",
       .layers = 28,
       .width = 1536,
       .heads = 12,
       .kv_heads = 2,
       .feed_forward = 8960,
       .vocabulary = 151936,
       .context = 32768,
       .epsilon = 1e-6,
       .rope_base = 1e6,
       .tied = true});
  add("qwen2.5-7b", 7'615'616'512,
      {.arch = "qwen2",
       .layers = 28,
       .width = 3584,
       .heads = 28,
       .kv_heads = 4,
       .feed_forward = 18944,
       .vocabulary = 152064,
       .context = 32768,
       .epsilon = 1e-6,
       .rope_base = 1e6});
  add("qwen3-0.6b", 596'049'920,
      {.arch = "qwen3",
       .layers = 28,
       .width = 1024,
       .heads = 16,
       .kv_heads = 8,
       .head_size = 128,
       .feed_forward = 3072,
       .vocabulary = 151936,
       .context = 40960,
       .epsilon = 1e-6,
       .rope_base = 1e6,
       .tied = true});
  add("tinyllama-1.1b", 1'100'048'384,
      {.layers = 22,
       .width = 2048,
       .heads = 32,
       .kv_heads = 4,
       .feed_forward = 5632,
       .vocabulary = 32000,
       .context = 2048});
  add("llama3.2-1b", 1'235'814'400,
      {.layers = 16,
       .width = 2048,
       .heads = 32,
       .kv_heads = 8,
       .feed_forward = 8192,
       .vocabulary = 128256,
       .context = 131072,
       .rope_base = 500000,
       .rope_factors = shared(32),
       .tied = true});
  add("granite-3.1-2b", 2'533'531'648,
      {.arch = "granite",
       .layers = 40,
       .width = 2048,
       .heads = 32,
       .kv_heads = 8,
       .feed_forward = 8192,
       .vocabulary = 49155,
       .context = 131072,
       .rope_base = 5e6,
       .embedding_scale = 12,
       .residual_scale = 0.22,
       .attention_scale = 0.015625,
       .logit_scale = 8,
       .tied = true});
  add("phi3-mini", 3'821'079'552,
      {.arch = "phi3",
       .layers = 32,
       .width = 3072,
       .heads = 32,
       .feed_forward = 8192,
       .vocabulary = 32064,
       .context = 4096,
       .window = 2047});
  add("mistral-7b", 7'248'023'552,
      {.layers = 32,
       .width = 4096,
       .heads = 32,
       .kv_heads = 8,
       .feed_forward = 14336,
       .vocabulary = 32768,
       .context = 32768,
       .rope_base = 1e6});
  add("gemma2-2b", 2'614'341'888,
      {.arch = "gemma2",
       .layers = 26,
       .width = 2304,
       .heads = 8,
       .kv_heads = 4,
       .head_size = 256,
       .feed_forward = 9216,
       .vocabulary = 256000,
       .context = 8192,
       .window = 4096,
       .epsilon = 1e-6,
       .tied = true});
  add("gemma3-1b", 999'885'952,
      {.arch = "gemma3",
       .layers = 26,
       .width = 1152,
       .heads = 4,
       .kv_heads = 1,
       .head_size = 256,
       .feed_forward = 6912,
       .vocabulary = 262144,
       .context = 32768,
       .window = 512,
       .epsilon = 1e-6,
       .rope_base = 1e6,
       .tied = true});
  add("gemma3-4b", 3'880'263'168,
      {.arch = "gemma3",
       .layers = 34,
       .width = 2560,
       .heads = 8,
       .kv_heads = 4,
       .head_size = 256,
       .feed_forward = 10240,
       .vocabulary = 262208,
       .context = 131072,
       .window = 1024,
       .epsilon = 1e-6,
       .rope_base = 1e6,
       .rope_scaling = {RopeScaling::Kind::kLinear, 8, 0},
       .tied = true});
  add("qwen3-30b-a3b", 30'532'122'624,
      {.arch = "qwen3moe",
       .layers = 48,
       .width = 2048,
       .heads = 32,
       .kv_heads = 4,
       .head_size = 128,
       .feed_forward = 6144,
       .experts = 128,
       .experts_used = 8,
       .expert_feed_forward = 768,
       .vocabulary = 151936,
       .context = 40960,
       .epsilon = 1e-6,
       .rope_base = 1e6});
  add("mixtral-8x7b", 46'702'792'704,
      {.layers = 32,
       .width = 4096,
       .heads = 32,
       .kv_heads = 8,
       .feed_forward = 14336,
       .experts = 8,
       .experts_used = 2,
       .vocabulary = 32000,
       .context = 32768,
       .rope_base = 1e6});
  add("olmoe-1b-7b", 6'919'161'856,
      {.arch = "olmoe",
       .layers = 16,
       .width = 2048,
       .heads = 16,
       .feed_forward = 1024,
       .experts = 64,
       .experts_used = 8,
       .vocabulary = 50304,
       .context = 4096});
  add("gpt-oss-20b", 20'914'757'184,
      {.arch = "gpt-oss",
       .layers = 24,
       .width = 2880,
       .heads = 64,
       .kv_heads = 8,
       .head_size = 64,
       .feed_forward = 2880,
       .experts = 32,
       .experts_used = 4,
       .expert_feed_forward = 2880,
       .vocabulary = 201088,
       .context = 131072,
       .window = 128,
       .rope_base = 150000,
       .rope_scaling = {RopeScaling::Kind::kYarn, 32, 4096}});
  add("deepseek-v2-lite", 15'706'484'224,
      {.arch = "deepseek2",
       .layers = 27,
       .width = 2048,
       .heads = 16,
       .head_size = 192,
       .value_size = 128,
       .latent = 512,
       .feed_forward = 10944,
       .experts = 64,
       .experts_used = 6,
       .expert_feed_forward = 1408,
       .shared_feed_forward = 2816,
       .dense_layers = 1,
       .vocabulary = 102400,
       .context = 163840,
       .epsilon = 1e-6,
       .rope_dims = 64,
       .rope_scaling = {.kind = RopeScaling::Kind::kYarn,
                        .factor = 40,
                        .original_context = 4096,
                        .sharpening = 0.707}});
  add("smollm3-3b", 3'075'098'624,
      {.arch = "smollm3",
       .layers = 36,
       .width = 2048,
       .heads = 16,
       .kv_heads = 4,
       .feed_forward = 11008,
       .vocabulary = 128256,
       .context = 65536,
       .epsilon = 1e-6,
       .rope_base = 5e6,
       .tied = true});
  add("phi2", 2'779'683'840,
      {.arch = "phi2",
       .layers = 32,
       .width = 2560,
       .heads = 32,
       .feed_forward = 10240,
       .vocabulary = 51200,
       .context = 2048,
       .rope_dims = 32});
  add("llama3-8b", 8'030'261'248,
      {.layers = 32,
       .width = 4096,
       .heads = 32,
       .kv_heads = 8,
       .feed_forward = 14336,
       .vocabulary = 128256,
       .context = 8192,
       .rope_base = 500000});
  add("llama3.1-8b", 8'030'261'248,
      {.layers = 32,
       .width = 4096,
       .heads = 32,
       .kv_heads = 8,
       .feed_forward = 14336,
       .vocabulary = 128256,
       .context = 131072,
       .rope_base = 500000,
       .rope_factors = shared(8)});
  return models;
}

}  // namespace

std::span<const KnownModel> known_models() {
  static const std::vector<KnownModel> models = make_known_models();
  return models;
}

Result<const KnownModel*> find_known_model(std::string_view name) {
  const auto models = known_models();
  const auto found = std::ranges::find(models, name, &KnownModel::name);
  if (found != models.end()) return &*found;
  std::string names;
  for (const KnownModel& model : models)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", model.name);
  return error("no model called '{}' is known; known: {}", name, names);
}

}  // namespace lockstep::forge
