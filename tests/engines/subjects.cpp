#include "subjects.h"

#include <algorithm>
#include <cstdlib>
#include <functional>

#include <fmt/format.h>

namespace lockstep::engines {

void PrintTo(const Subject& subject, std::ostream* out) {
  *out << subject.name;
}

std::vector<Subject> subjects() {
  using forge::RopeFactors;
  using forge::RopeScaling;
  forge::Spec small{.layers = 3,
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
  const auto like = [&](const std::string& arch, const std::function<void(forge::Spec&)>& alter) {
    forge::Spec spec = small;
    spec.arch = arch;
    alter(spec);
    return spec;
  };
  std::vector<Subject> out;
  out.push_back({"llama",
                 like("llama",
                      [](forge::Spec& s) {
                        s.rope_factors = {RopeFactors::Kind::kShared, 8, 16};
                      }),
                 "", 58, ""});
  out.push_back({"llama_yarn",
                 like("llama",
                      [](forge::Spec& s) {
                        s.rope_scaling = {RopeScaling::Kind::kYarn, 4, 16};
                        s.type = "bf16";
                      }),
                 "", 58, ""});
  out.push_back({"qwen2",
                 like("qwen2",
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
                 like("qwen3",
                      [](forge::Spec& s) {
                        s.head_size = 16;
                        s.type = "f16";
                      }),
                 "", 59, ""});
  out.push_back({"phi3",
                 like("phi3",
                      [](forge::Spec& s) {
                        s.window = 5;
                        s.rope_factors = {RopeFactors::Kind::kLongShort, 8, 16};
                      }),
                 "", 62, ""});
  out.push_back({"granite",
                 like("granite",
                      [](forge::Spec& s) {
                        s.embedding_scale = 12;
                        s.residual_scale = 0.22;
                        s.attention_scale = 0.0625;
                        s.logit_scale = 8;
                      }),
                 "", 61, ""});
  out.push_back({"gpt2", like("gpt2", [](forge::Spec& s) { s.kv_heads = 4; }), "", 54, ""});
  out.push_back({"gemma2", like("gemma2", [](forge::Spec& s) { s.window = 5; }), "", 60,
                 fmt::format("{}: attn_norm: epsilon / 100\n"
                             "layers: attn_norm: epsilon / 100\n"
                             "layers: ffn_norm: epsilon 0\n",
                             kThin)});
  out.push_back(
      {"stablelm", like("stablelm", [](forge::Spec& s) { s.rope_dims = 4; }), "", 59, ""});
  out.push_back({"llama_q8_0",
                 like("llama",
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

bool thorough() {
  return std::getenv("LOCKSTEP_THOROUGH") != nullptr;
}

}  // namespace lockstep::engines
