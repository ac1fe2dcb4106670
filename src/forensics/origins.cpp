#include "forensics/origins.h"

#include <algorithm>

namespace lockstep::forensics {
namespace {

const std::vector<Origin>& origins() {
  static const std::vector<Origin> kOrigins = {
      {"attn_norm", {{"stream"}}},
      {"qkv", {{"attn_norm"}}},
      {"q", {{"attn_norm"}, {"qkv"}}},
      {"k", {{"attn_norm"}, {"qkv"}}},
      {"v", {{"attn_norm"}, {"qkv"}}},
      {"q_rope", {{"q"}}},
      {"k_rope", {{"k"}}},
      {"attn_scores", {{"q_rope"}, {"q"}}},
      {"attn_mix", {{"v"}}},  // at position 0, which sees itself only
      {"attn_out", {{"attn_mix"}}},
      {"attn_residual", {{"stream", "attn_out"}}},
      {"ffn_norm", {{"attn_residual"}}},
      {"ffn_gate_up", {{"ffn_norm"}}},
      {"ffn_gate", {{"ffn_norm"}, {"ffn_gate_up"}}},
      {"ffn_up", {{"ffn_norm"}, {"ffn_gate_up"}}},
      {"ffn_act", {{"ffn_gate"}, {"ffn_up"}}},
      {"ffn_out", {{"ffn_act"}}},
      {"output", {{"attn_residual", "ffn_out"}, {"stream", "attn_out", "ffn_out"}}},
      {"final_norm", {{"stream"}}},
      {"logits", {{"final_norm"}}},
  };
  return kOrigins;
}

}  // namespace

std::string_view leaf_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

const Origin* origin_of(std::string_view name) {
  const auto& all = origins();
  const auto found = std::ranges::find(all, leaf_of(name), &Origin::leaf);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace lockstep::forensics
