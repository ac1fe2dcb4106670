#include "subjects.h"

#include <algorithm>
#include <cstdlib>
#include <functional>

#include <fmt/format.h>

namespace lockstep::engines {

void PrintTo(const Subject& subject, std::ostream* out) {
  *out << subject.name;
}

namespace {

forge::Spec small_model(const std::string& arch, const std::function<void(forge::Spec&)>& alter) {
  forge::Spec spec{.arch = arch,
                   .layers = 3,
                   .width = 40,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_size = 10,
                   .feed_forward = 37,
                   .vocabulary = 67,
                   .context = 64,
                   .biases = true,
                   .type = "f32",
                   .seed = 11};
  alter(spec);
  return spec;
}

}  // namespace

std::vector<Subject> subjects() {
  using forge::RopeFactors;
  using forge::RopeScaling;
  std::vector<Subject> out;
  out.push_back({"llama",
                 small_model("llama",
                             [](forge::Spec& s) {
                               s.rope_factors = {RopeFactors::Kind::kShared, 8, 16};
                             }),
                 "", 58, ""});
  out.push_back({"llama_yarn",
                 small_model("llama",
                             [](forge::Spec& s) {
                               s.rope_scaling = {RopeScaling::Kind::kYarn, 4, 16};
                               s.type = "bf16";
                             }),
                 "", 58, ""});
  out.push_back({"qwen2",
                 small_model("qwen2",
                             [](forge::Spec& s) {
                               s.heads = 6;
                               s.rope_base = 1e6;
                               s.tied = true;
                               s.epsilon = 1e-6;
                             }),
                 "", 57,
                 fmt::format("{}: attn_norm: epsilon / 100\n"
                             "layers: attn_norm: epsilon / 100\n"
                             "layers: ffn_norm: epsilon 0\n",
                             kThin)});
  out.push_back({"qwen3",
                 small_model("qwen3",
                             [](forge::Spec& s) {
                               s.head_size = 16;
                               s.type = "f16";
                             }),
                 "", 59, ""});
  out.push_back({"phi3",
                 small_model("phi3",
                             [](forge::Spec& s) {
                               s.window = 5;
                               s.rope_factors = {RopeFactors::Kind::kLongShort, 8, 16};
                             }),
                 "", 62, ""});
  out.push_back({"granite",
                 small_model("granite",
                             [](forge::Spec& s) {
                               s.embedding_scale = 12;
                               s.residual_scale = 0.22;
                               s.attention_scale = 0.0625;
                               s.logit_scale = 8;
                             }),
                 "", 61, ""});
  out.push_back({"gpt2", small_model("gpt2", [](forge::Spec& s) { s.kv_heads = 4; }), "", 54, ""});
  out.push_back({"gemma2", small_model("gemma2", [](forge::Spec& s) { s.window = 5; }), "", 60,
                 fmt::format("{}: attn_norm: epsilon / 100\n"
                             "layers: attn_norm: epsilon / 100\n"
                             "layers: ffn_norm: epsilon 0\n",
                             kThin)});
  out.push_back(
      {"stablelm", small_model("stablelm", [](forge::Spec& s) { s.rope_dims = 4; }), "", 59, ""});
  out.push_back({"llama_q8_0",
                 small_model("llama",
                             [](forge::Spec& s) {
                               s.width = 64;
                               s.head_size = 16;
                               s.feed_forward = 96;
                               s.type = "q8_0";
                               s.rope_scaling = {RopeScaling::Kind::kLinear, 2, 0};
                             }),
                 "", 58, ""});
  const auto shipped = [&](const std::string& name, int bugs, const std::string& drowned = "") {
    out.push_back({"haiku_" + name, {}, "haiku-" + name + ".gguf", bugs, drowned});
  };
  shipped("gpt2-f32", 54);
  shipped("granite-q4_k_m", 55, "ops: attn_norm: epsilon / 100\nops: ffn_norm: epsilon 0\n");
  shipped("llama-q4_k_m", 51, "ops: attn_norm: epsilon / 100\n");
  shipped("phi3-q4_k_m", 52, "ops: attn_norm: epsilon / 100\n");
  shipped("qwen2-f16", 53, "ops: attn_norm: epsilon / 100\n");
  for (Subject& subject : out)
    std::ranges::replace_if(
        subject.name, [](char c) { return c == '-'; }, '_');
  return out;
}

std::vector<Subject> routed_subjects() {
  std::vector<Subject> out;
  out.push_back({"gpt_oss",
                 small_model("gpt-oss",
                             [](forge::Spec& s) {
                               s.window = 5;
                               s.experts = 7;
                               s.experts_used = 3;
                               s.expert_feed_forward = 29;
                             }),
                 "", 55, ""});
  out.push_back({"deepseek2",
                 small_model("deepseek2",
                             [](forge::Spec& s) {
                               s.head_size = 14;
                               s.value_size = 9;
                               s.rope_dims = 4;
                               s.latent = 22;
                               s.query_latent = 19;
                               s.experts = 7;
                               s.experts_used = 3;
                               s.expert_feed_forward = 29;
                               s.shared_feed_forward = 31;
                               s.sigmoid_experts = true;
                               s.expert_scale = 2.5;
                             }),
                 "", 45, ""});
  return out;
}

bool thorough() {
  return std::getenv("LOCKSTEP_THOROUGH") != nullptr;
}

}  // namespace lockstep::engines
