// The checkpoints: values of a forward pass whose names all engines share. One table for the
// program, for docs/checkpoints.md and for Python, which has a copy of what it needs
// (python/lockstep/_checkpoints.py); tests hold the three together.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep::detail {

struct CheckpointRow {
  std::string_view name;           // N stands for the number of the layer
  std::string_view shape;          // by the sizes that docs/checkpoints.md explains
  std::string_view sets;           // that have it, of kCheckpointSets
  std::string_view architectures;  // that have it: names, "all", or "all but" names
  std::string_view formula;
  std::string_view notes;
};

inline constexpr std::string_view kCheckpointSets[] = {"logits", "layers", "ops", "all"};

inline constexpr std::string_view kAllArchitectures = "all";
inline constexpr std::string_view kWithPostNorms = "gemma2 gemma3 olmo2 glm4";
inline constexpr std::string_view kWithShared = "qwen2moe deepseek2";
inline constexpr std::string_view kLatent = "deepseek2";
// A file of another architecture that has experts has the same, in place of what `kDense` has.
inline constexpr std::string_view kWithExperts =
    "qwen2moe qwen3moe olmoe granitemoe gpt-oss deepseek2";
inline constexpr std::string_view kDense =
    "all but qwen2moe qwen3moe olmoe granitemoe gpt-oss deepseek2";
inline constexpr std::string_view kScoresShape = "[heads, tokens, positions]";

// In order of execution.
inline constexpr CheckpointRow kCheckpointRows[] = {
    {"embedding", "[tokens, width]", "layers ops all", kAllArchitectures,
     "embedding = embedding_scale * token_embd.weight[token] + position_embd.weight[position]",
     "The second term exists in gpt2 alone. `embedding_scale` is the file's in granite and "
     "sqrt(width) in gemma2 and gemma3; elsewhere it is 1."},
    {"blk.N.attn_norm", "[tokens, width]", "ops all", "all but olmo2",
     "attn_norm = x / sqrt(mean(x^2) + epsilon) * attn_norm.weight",
     "x is `embedding` in layer 0, and the `output` of the layer before in all others. The mean is "
     "over the row. In gpt2, phi2, stablelm and starcoder2: (x - mean(x)) / sqrt(variance(x) + "
     "epsilon) * attn_norm.weight + attn_norm.bias, where the variance is the mean of (x - "
     "mean(x))^2. The files of gemma2 and gemma3 hold the weight with its 1 added."},
    {"blk.N.q_a", "[tokens, query_latent]", "ops all", kLatent, "q_a = attn_q_a.weight · attn_norm",
     "The short row that queries are made from. A file without attn_q_a.weight, such as that of "
     "DeepSeek-V2-Lite, has neither this nor `q_a_norm`."},
    {"blk.N.kv_a", "[tokens, latent + rotated]", "ops all", kLatent,
     "kv_a = attn_kv_a_mqa.weight · attn_norm",
     "The short row that keys and values of all heads are made from, then the numbers of keys that "
     "are to be rotated."},
    {"blk.N.q_a_norm", "[tokens, query_latent]", "ops all", kLatent,
     "q_a_norm = q_a / sqrt(mean(q_a^2) + epsilon) * attn_q_a_norm.weight",
     "Where there is a `q_a`. The mean is over the row."},
    {"blk.N.kv_a_norm", "[tokens, latent]", "ops all", kLatent,
     "kv_a_norm = x / sqrt(mean(x^2) + epsilon) * attn_kv_a_norm.weight",
     "x is the first `latent` numbers of `kv_a`."},
    {"blk.N.q", "[tokens, heads * head_size]", "ops all", kAllArchitectures,
     "q = attn_q.weight · attn_norm + attn_q.bias",
     "After the bias, before the rotation, and without the scale of the scores. A file with "
     "attn_qkv.weight (gpt2, phi3) takes the first heads * head_size numbers of attn_qkv.weight · "
     "attn_norm + attn_qkv.bias. In qwen3 and gemma3 `q` is what the norm of heads gives: each "
     "head "
     "of the product, x / sqrt(mean(x^2) + epsilon) * attn_q_norm.weight; in olmo2 the same norm "
     "of "
     "the whole row; in stablelm, where the file has attn_q_norm.weight, each head with the mean "
     "taken off and a weight of its own. In olmo2 the product is with the input of the layer, "
     "`embedding` or the `output` of the layer before: there is no norm before it. The order "
     "within a head is that of the GGUF file. In llama, granite and "
     "smollm3 the two numbers of a rotating pair lie side by side, where Hugging Face's files have "
     "them half a head apart. In deepseek2 with attn_q_b.weight, `q` is attn_q_b.weight · "
     "`q_a_norm`."},
    {"blk.N.k", "[tokens, kv_heads * head_size]", "ops all", "all but deepseek2",
     "k = attn_k.weight · attn_norm + attn_k.bias",
     "As `q`: after the bias, before the rotation. A file with attn_qkv.weight takes the numbers "
     "that follow those of q in attn_qkv.weight · attn_norm + attn_qkv.bias. Norms as those of "
     "`q`, "
     "with attn_k_norm.weight. In olmo2 the product is with `embedding` or the `output` of the "
     "layer "
     "before."},
    {"blk.N.v", "[tokens, kv_heads * value_size]", "ops all", kAllArchitectures,
     "v = attn_v.weight · attn_norm + attn_v.bias",
     "After the bias; values are never rotated or normalized. A file with attn_qkv.weight takes "
     "the "
     "last numbers of attn_qkv.weight · attn_norm + attn_qkv.bias. In olmo2 the product is with "
     "`embedding` or the `output` of the layer before. In deepseek2 `v` is written out for every "
     "head: attn_v_b.weight · `kv_a_norm`, or of each head of attn_kv_b.weight · `kv_a_norm` the "
     "last value_size numbers."},
    {"blk.N.q_pe", "[tokens, heads * rotated]", "ops all", kLatent,
     "q_pe = the last `rotated` numbers of each head of q, rotated",
     "Pairs, frequencies and angles as in `q_rope` of llama, with dims = rotated. `magnitude` is 1 "
     "where the file says how YaRN sharpens all scores (`rope.scaling.yarn_log_multiplier`)."},
    {"blk.N.k_pe", "[tokens, rotated]", "ops all", kLatent,
     "k_pe = the last `rotated` numbers of kv_a, rotated", "As `q_pe`. One row for all heads."},
    {"blk.N.q_rope", "[tokens, heads * head_size]", "ops all", "all but gpt2",
     "(q_rope[a], q_rope[b]) = magnitude * (q[a] cos(w) - q[b] sin(w), q[a] sin(w) + q[b] cos(w))",
     "The angle w of pair i is position * frequency(i), with the absolute position. Pairs within a "
     "head: (2i, 2i + 1) in llama, granite, smollm3 and glm4, (i, i + dims / 2) in the others. "
     "frequency(i) = base^(-2i / dims), divided by the factor of the pair where the file has "
     "rope_freqs.weight or rope_factors_long.weight and rope_factors_short.weight. Numbers of a "
     "head beyond `dims` are copied. `magnitude` is 1, unless the file asks for another. Linear "
     "scaling and YaRN change frequencies and magnitude as the file says. YaRN's ramp between fast "
     "and slow pairs begins and ends at whole pairs, but in gpt-oss where it is computed to. In "
     "gemma3 layers with a "
     "window have another base (10000, or the file's `rope.freq_base_swa`) and no scaling; in "
     "olmo2 "
     "they have no scaling. In smollm3 the last of every four layers does not rotate and has no "
     "`q_rope`. In deepseek2 each head of `q_rope` is the first numbers of that head of `q`, then "
     "its part of `q_pe`. Without the scale of the scores."},
    {"blk.N.k_rope", "[tokens, kv_heads * head_size]", "ops all", "all but gpt2",
     "(k_rope[a], k_rope[b]) = magnitude * (k[a] cos(w) - k[b] sin(w), k[a] sin(w) + k[b] cos(w))",
     "As `q_rope`, from `k`. Recorded as computed, before it is rounded to the type of the cache. "
     "In "
     "deepseek2 keys are written out for every head: attn_k_b.weight (transposed) · `kv_a_norm`, "
     "or "
     "of each head of attn_kv_b.weight · `kv_a_norm` the first numbers, then `k_pe`. An engine "
     "that "
     "multiplies queries by attn_k_b.weight in place of keys (the absorbed form) has no `q_rope`, "
     "`k_rope` and `v` to record; all its other values have these names."},
    {"blk.N.attn_scores", kScoresShape, "all", kAllArchitectures,
     "attn_scores[h, t, p] = scale * (q_rope[t, head h] · k_rope[p, head h / (heads / kv_heads)])",
     "After the scale and after the mask, before the softmax. `scale` is 1 / sqrt(head_size); in "
     "granite it is the file's `attention.scale`, if the file has one; in gemma2 of 46 layers and "
     "gemma3 of 62 layers it is 1 / sqrt(width / heads). In deepseek2, where the file extends the "
     "context by YaRN, it is multiplied by (1 + m * ln(factor))^2 with the file's "
     "`rope.scaling.yarn_log_multiplier` m. gemma2 then caps: cap * tanh(score / "
     "cap), "
     "with the file's `attn_logit_softcapping`. Mask: minus infinity where p is after the position "
     "of token t. A layer with a window of W positions masks what is W or more before that "
     "position "
     "too. In gemma2 and gpt-oss the last of every two layers has no window, in gemma3 the last of "
     "every six, "
     "in "
     "olmo2 the last of every four, unless the file says otherwise. An engine may mask with any "
     "number below -5000 in place of minus infinity. Columns beyond the last position of the step "
     "are padding, which nobody looks at. The keys are those of the cache. Layers without rotation "
     "have `q` and `k` in place of the rotated ones."},
    {"blk.N.attn_probs", kScoresShape, "all", kAllArchitectures,
     "attn_probs[h, t, p] = exp(attn_scores[h, t, p]) / sum over p of exp(attn_scores[h, t, p])",
     "The softmax of `attn_scores`: each row of positions sums to 1. Masked positions are 0. In "
     "gpt-oss the sum below the line has exp(attn_sinks.weight[h]) as one more term, so that a row "
     "sums to less than 1."},
    {"blk.N.attn_mix", "[tokens, heads * value_size]", "ops all", kAllArchitectures,
     "attn_mix[t, head h] = sum over p of attn_probs[h, t, p] * v[p, head h / (heads / kv_heads)]",
     "Before the output projection, the heads one after another. The values `v` are those of the "
     "cache."},
    {"blk.N.attn_out", "[tokens, width]", "ops all", kAllArchitectures,
     "attn_out = attn_output.weight · attn_mix + attn_output.bias",
     "Before `attn_post_norm`, before `residual_scale` (granite) and before the sum with the "
     "residual stream."},
    {"blk.N.attn_post_norm", "[tokens, width]", "ops all", kWithPostNorms,
     "attn_post_norm = x / sqrt(mean(x^2) + epsilon) * post_attention_norm.weight",
     "x is `attn_out`."},
    {"blk.N.attn_residual", "[tokens, width]", "ops all", "all but phi2",
     "attn_residual = x + residual_scale * attn_out",
     "x is the input of the layer: `embedding` or the `output` of the layer before. Where there is "
     "an `attn_post_norm`, it stands in place of `attn_out`. `residual_scale` is 1 except in "
     "granite. A file of stablelm without ffn_norm.weight has none: there, as in phi2, the blocks "
     "stand "
     "side by side, and both are added to the input of the layer."},
    {"blk.N.ffn_norm", "[tokens, width]", "ops all", "all but olmo2 phi2",
     "ffn_norm = x / sqrt(mean(x^2) + epsilon) * ffn_norm.weight",
     "x is `attn_residual`. In gpt2, stablelm and starcoder2 as `attn_norm` there, with "
     "ffn_norm.weight and ffn_norm.bias. A file of stablelm without ffn_norm.weight has none. "
     "Files of gpt-oss call the weight post_attention_norm.weight."},
    {"blk.N.ffn_gate", "[tokens, feed_forward]", "ops all",
     "all but gpt2 phi2 starcoder2 qwen2moe qwen3moe olmoe granitemoe gpt-oss deepseek2",
     "ffn_gate = ffn_gate.weight · ffn_norm + ffn_gate.bias",
     "Before the activation. phi3 and glm4 take the first half of ffn_up.weight · ffn_norm + "
     "ffn_up.bias. In olmo2 the product is with `attn_residual`; where there is no `ffn_norm` "
     "because the blocks stand side by side, it is with `attn_norm`."},
    {"blk.N.ffn_up", "[tokens, feed_forward]", "ops all", kDense,
     "ffn_up = ffn_up.weight · ffn_norm + ffn_up.bias",
     "Before the activation. phi3 and glm4 take the second half of that product. In olmo2 the "
     "product is with `attn_residual`; where the blocks stand side by side, it is with "
     "`attn_norm`."},
    {"blk.N.ffn_act", "[tokens, feed_forward]", "ops all", kDense,
     "ffn_act = silu(ffn_gate) * ffn_up",
     "silu(x) = x / (1 + exp(-x)). In gemma2 and gemma3: gelu(ffn_gate) * ffn_up; in gpt2, phi2 "
     "and "
     "starcoder2: gelu(ffn_up). The form with tanh: gelu(x) = 0.5 * x * (1 + tanh(sqrt(2 / pi) * "
     "(x "
     "+ 0.044715 * x^3)))."},
    {"blk.N.ffn_router", "[tokens, experts]", "ops all", kWithExperts,
     "ffn_router = ffn_gate_inp.weight · ffn_norm",
     "One number for each expert, before softmax or sigmoid. Files of llama can have experts too: "
     "they then have the checkpoints from here to `ffn_expert_out` in place of `ffn_gate`, "
     "`ffn_up` "
     "and `ffn_act`. In gpt-oss ffn_gate_inp.bias is added."},
    {"blk.N.ffn_choice", "[tokens, experts_used]", "layers ops all", kWithExperts,
     "ffn_choice = the experts with the largest scores",
     "The numbers of the experts that a token takes, from 0 on. Their order says nothing, but all "
     "that follows, up to `ffn_expert_out`, has the same. A score is the softmax of `ffn_router`, "
     "or its sigmoid where the file says so; exp_probs_b.bias, where the file has it, is added for "
     "the choice alone. Where the file has groups of experts, only those of the best groups can be "
     "chosen; a group is as good as the sum of its two largest scores, or without exp_probs_b.bias "
     "as its largest score. In deepseek2 the first layers (`leading_dense_block_count`) have no "
     "experts: they have `ffn_gate`, `ffn_up` and `ffn_act`."},
    {"blk.N.ffn_weights", "[tokens, experts_used]", "ops all", kWithExperts,
     "ffn_weights[slot] = scale * score[ffn_choice[slot]] / sum over chosen experts of score",
     "What each chosen expert counts. The score is that of `ffn_router`, without the bias of the "
     "choice. The sum is over the chosen experts in qwen3moe, granitemoe, gpt-oss and llama; "
     "qwen2moe, deepseek2 and olmoe do not divide. The file can say otherwise "
     "(`expert_weights_norm`). `scale` is the "
     "file's `expert_weights_scale`, or 1."},
    {"blk.N.ffn_expert_gate", "[tokens, experts_used * expert_feed_forward]", "ops all",
     kWithExperts, "ffn_expert_gate[slot] = ffn_gate_exps.weight[ffn_choice[slot]] · ffn_norm",
     "The chosen experts of a token one after another, in the order of `ffn_choice`. Before the "
     "activation. In gpt-oss ffn_gate_exps.bias[ffn_choice[slot]] is added."},
    {"blk.N.ffn_expert_up", "[tokens, experts_used * expert_feed_forward]", "ops all", kWithExperts,
     "ffn_expert_up[slot] = ffn_up_exps.weight[ffn_choice[slot]] · ffn_norm",
     "As `ffn_expert_gate`, in gpt-oss with ffn_up_exps.bias."},
    {"blk.N.ffn_expert_act", "[tokens, experts_used * expert_feed_forward]", "ops all",
     kWithExperts, "ffn_expert_act = silu(ffn_expert_gate) * ffn_expert_up",
     "Number by number. silu(x) = x / (1 + exp(-x)). In gpt-oss: (1 + u) * g / (1 + exp(-1.702 * "
     "g)), where g is `ffn_expert_gate`, but at most 7, and u is `ffn_expert_up`, but at least -7 "
     "and at most 7."},
    {"blk.N.ffn_expert_out", "[tokens, experts_used * width]", "ops all", kWithExperts,
     "ffn_expert_out[slot] = ffn_down_exps.weight[ffn_choice[slot]] · ffn_expert_act[slot]",
     "Before it is multiplied by its weight. In gpt-oss ffn_down_exps.bias[ffn_choice[slot]] is "
     "added."},
    {"blk.N.ffn_experts", "[tokens, width]", "ops all", kWithShared,
     "ffn_experts = sum over slots of ffn_weights[slot] * ffn_expert_out[slot]",
     "Where no expert is shared by all tokens, this sum is `ffn_out`. A file of granitemoe that "
     "has "
     "a shared expert has the checkpoints from here to `ffn_shared_out` too, and adds that without "
     "a gate."},
    {"blk.N.ffn_shared_gate", "[tokens, shared_feed_forward]", "ops all", kWithShared,
     "ffn_shared_gate = ffn_gate_shexp.weight · ffn_norm + ffn_gate_shexp.bias",
     "Of the expert that all tokens share. Before the activation."},
    {"blk.N.ffn_shared_up", "[tokens, shared_feed_forward]", "ops all", kWithShared,
     "ffn_shared_up = ffn_up_shexp.weight · ffn_norm + ffn_up_shexp.bias",
     "Before the activation."},
    {"blk.N.ffn_shared_act", "[tokens, shared_feed_forward]", "ops all", kWithShared,
     "ffn_shared_act = silu(ffn_shared_gate) * ffn_shared_up", "silu(x) = x / (1 + exp(-x))."},
    {"blk.N.ffn_shared_out", "[tokens, width]", "ops all", kWithShared,
     "ffn_shared_out = ffn_down_shexp.weight · ffn_shared_act + ffn_down_shexp.bias",
     "Before its gate."},
    {"blk.N.ffn_shared_router", "[tokens, 1]", "ops all", "qwen2moe",
     "ffn_shared_router = ffn_gate_inp_shexp.weight · ffn_norm", "Before the sigmoid."},
    {"blk.N.ffn_out", "[tokens, width]", "ops all", kAllArchitectures,
     "ffn_out = ffn_down.weight · ffn_act + ffn_down.bias",
     "With experts: the sum over slots of ffn_weights[slot] * ffn_expert_out[slot]; in qwen2moe "
     "ffn_experts + ffn_shared_out / (1 + exp(-ffn_shared_router)), in deepseek2 ffn_experts + "
     "ffn_shared_out. "
     "Before `ffn_post_norm`, before `residual_scale` (granite) and before the sum with the "
     "residual "
     "stream."},
    {"blk.N.ffn_post_norm", "[tokens, width]", "ops all", kWithPostNorms,
     "ffn_post_norm = x / sqrt(mean(x^2) + epsilon) * post_ffw_norm.weight", "x is `ffn_out`."},
    {"blk.N.output", "[tokens, width]", "layers ops all", kAllArchitectures,
     "output = attn_residual + residual_scale * ffn_out",
     "In phi2: x + attn_out + ffn_out, where x is `embedding` or the `output` of the layer before. "
     "What the layer hands to the next one. Where there is an `ffn_post_norm`, it stands in place "
     "of "
     "`ffn_out`. `residual_scale` is 1 except in granite."},
    {"final_norm", "[tokens, width]", "layers ops all", kAllArchitectures,
     "final_norm = x / sqrt(mean(x^2) + epsilon) * output_norm.weight",
     "x is the `output` of the last layer. In gpt2, phi2, stablelm and starcoder2 as `attn_norm` "
     "there, with output_norm.weight and output_norm.bias."},
    {"logits", "[tokens, vocabulary]", "logits layers ops all", kAllArchitectures,
     "logits = (output.weight · final_norm + output.bias) / logit_scale",
     "Before temperature, penalties and softmax. A file without output.weight uses "
     "token_embd.weight in its place. `logit_scale` is 1 except in granite. gemma2 then caps: cap "
     "* "
     "tanh(logits / cap), with the file's `final_logit_softcapping`; so does gemma3 if the file "
     "has "
     "that key. A trace may hold the last rows of a step alone: most engines compute no others."},
};

// Whether a list of words parted by spaces has a word.
inline constexpr bool has_word(std::string_view words, std::string_view wanted) {
  while (!words.empty()) {
    const size_t end = words.find(' ');
    if (words.substr(0, end) == wanted) return true;
    words.remove_prefix(end == std::string_view::npos ? words.size() : end + 1);
  }
  return false;
}

// Whether an architecture has a checkpoint in some layer.
inline constexpr bool exists_in(const CheckpointRow& row, std::string_view architecture) {
  if (row.architectures == kAllArchitectures) return true;
  const std::string_view but = "all but ";
  if (row.architectures.substr(0, but.size()) == but)
    return !has_word(row.architectures.substr(but.size()), architecture);
  return has_word(row.architectures, architecture);
}

// The name within its layer: "q" of "blk.N.q" and of "blk.7.q"; others as they are.
inline constexpr std::string_view checkpoint_leaf(std::string_view name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0
}

// The row of a name such as blk.7.q; nullptr where it is no checkpoint's.
inline constexpr const CheckpointRow* find_checkpoint(std::string_view name) {
  constexpr std::string_view kLayer = "blk.";
  const bool in_layer = name.substr(0, kLayer.size()) == kLayer;
  std::string_view leaf = name;
  if (in_layer) {
    const std::string_view rest = name.substr(kLayer.size());
    const size_t digits = rest.find_first_not_of("0123456789");
    if (digits == 0 || digits == std::string_view::npos || rest[digits] != '.') return nullptr;
    leaf = rest.substr(digits + 1);
  }
  for (const CheckpointRow& row : kCheckpointRows)
    if ((row.name.substr(0, kLayer.size()) == kLayer) == in_layer &&
        (in_layer ? checkpoint_leaf(row.name) : row.name) == leaf)
      return &row;
  return nullptr;
}

}  // namespace lockstep::detail
