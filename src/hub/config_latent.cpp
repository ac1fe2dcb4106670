#include "hub/config_parts.h"

namespace lockstep::hub {
namespace {

// DeepSeek-V2 has two ways, and says which; V3 has groups always.
Result<void> read_groups(const Settings& in, Keys& keys) {
  LS_TRY(const std::string method, in.at("topk_method").text_or("greedy"));
  if (!in.family().sigmoid_experts && method != "group_limited_greedy") return {};
  LS_TRY(const int64_t groups, in.needed_count("n_group"));
  LS_TRY(const int64_t used, in.needed_count("topk_group"));
  keys.count("expert_group_count", groups);
  keys.count("expert_group_used_count", used);
  return {};
}

}  // namespace

Result<void> read_latent(const Settings& in, Config& out) {
  if (!in.family().latent) return {};
  Keys keys(out);
  LS_TRY(const int64_t row, in.needed_count("kv_lora_rank"));
  LS_TRY(const int64_t rotated, in.needed_count("qk_rope_head_dim"));
  LS_TRY(out.still_size, in.needed_count("qk_nope_head_dim"));
  LS_TRY(out.value_size, in.needed_count("v_head_dim"));
  LS_TRY(const std::optional<int64_t> more, in.count("num_nextn_predict_layers", 0));
  LS_TRY(const std::optional<int64_t> renamed, in.count("num_mtp_layers", 0));
  out.more_layers = renamed.value_or(more.value_or(0));
  // Files count the short row as the one head of keys and values.
  keys.count("attention.head_count_kv", 1);
  keys.count("attention.kv_lora_rank", row);
  keys.count("attention.key_length", row + rotated);
  keys.count("attention.value_length", row);
  keys.count("attention.key_length_mla", out.still_size + rotated);
  keys.count("attention.value_length_mla", out.value_size);
  constexpr int64_t kSigmoid = 2;
  if (in.family().sigmoid_experts) keys.count("expert_gating_func", kSigmoid);
  return read_groups(in, keys);
}

}  // namespace lockstep::hub
