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
  std::string_view architectures;  // that have it
  std::string_view formula;
  std::string_view notes;
};

inline constexpr std::string_view kCheckpointSets[] = {"logits", "layers", "ops", "all"};

inline constexpr std::string_view kEveryArchitecture = "gpt2 llama qwen2 qwen3 phi3 granite";
inline constexpr std::string_view kAllButGpt2 = "llama qwen2 qwen3 phi3 granite";
inline constexpr std::string_view kScoresShape = "[heads, tokens, positions]";

// In order of execution.
inline constexpr CheckpointRow kCheckpointRows[] = {
    {"embedding", "[tokens, width]", "layers ops all", kEveryArchitecture,
     "embedding = embedding_scale * token_embd.weight[token] + position_embd.weight[position]",
     "The second term exists in gpt2 alone. `embedding_scale` is 1 except in granite."},
    {"blk.N.attn_norm", "[tokens, width]", "ops all", kEveryArchitecture,
     "attn_norm = x / sqrt(mean(x^2) + epsilon) * attn_norm.weight",
     "x is `embedding` in layer 0, and the `output` of the layer before in all others. The mean is "
     "over the row. In gpt2: (x - mean(x)) / sqrt(variance(x) + epsilon) * attn_norm.weight + "
     "attn_norm.bias, where the variance is the mean of (x - mean(x))^2."},
    {"blk.N.q", "[tokens, heads * head_size]", "ops all", kEveryArchitecture,
     "q = attn_q.weight · attn_norm + attn_q.bias",
     "After the bias, before the rotation, and without the scale of the scores. gpt2 and phi3 "
     "take the first heads * head_size numbers of attn_qkv.weight · attn_norm + attn_qkv.bias. In"
     " qwen3 `q` is what the norm of heads gives: each head of the product, x / sqrt(mean(x^2) + "
     "epsilon) * attn_q_norm.weight. The order within a head is that of the GGUF file. In llama "
     "and granite the two numbers of a rotating pair lie side by side, where Hugging Face's files"
     " have them half a head apart."},
    {"blk.N.k", "[tokens, kv_heads * head_size]", "ops all", kEveryArchitecture,
     "k = attn_k.weight · attn_norm + attn_k.bias",
     "As `q`: after the bias, before the rotation. gpt2 and phi3 take the numbers that follow "
     "those "
     "of q in attn_qkv.weight · attn_norm + attn_qkv.bias. In qwen3 each head is normalized with "
     "attn_k_norm.weight."},
    {"blk.N.v", "[tokens, kv_heads * value_size]", "ops all", kEveryArchitecture,
     "v = attn_v.weight · attn_norm + attn_v.bias",
     "After the bias; values are never rotated or normalized. gpt2 and phi3 take the last numbers "
     "of attn_qkv.weight · attn_norm + attn_qkv.bias."},
    {"blk.N.q_rope", "[tokens, heads * head_size]", "ops all", kAllButGpt2,
     "(q_rope[a], q_rope[b]) = magnitude * (q[a] cos(w) - q[b] sin(w), q[a] sin(w) + q[b] cos(w))",
     "The angle w of pair i is position * frequency(i), with the absolute position. Pairs within a "
     "head: (2i, 2i + 1) in llama and granite, (i, i + dims / 2) in qwen2, qwen3 and phi3. "
     "frequency(i) = base^(-2i / dims), divided by the factor of the pair where the file has "
     "rope_freqs.weight or rope_factors_long.weight and rope_factors_short.weight. Numbers of a "
     "head beyond `dims` are copied. `magnitude` is 1, unless the file asks for another. Linear "
     "scaling and YaRN change frequencies and magnitude as the file says. Without the scale of the "
     "scores."},
    {"blk.N.k_rope", "[tokens, kv_heads * head_size]", "ops all", kAllButGpt2,
     "(k_rope[a], k_rope[b]) = magnitude * (k[a] cos(w) - k[b] sin(w), k[a] sin(w) + k[b] cos(w))",
     "As `q_rope`, from `k`. Recorded as computed, before it is rounded to the type of the cache."},
    {"blk.N.attn_scores", kScoresShape, "all", kEveryArchitecture,
     "attn_scores[h, t, p] = scale * (q_rope[t, head h] · k_rope[p, head h / (heads / kv_heads)])",
     "After the scale and after the mask, before the softmax. `scale` is 1 / sqrt(head_size); in "
     "granite it is the file's `attention.scale`, if the file has one. Mask: minus infinity where"
     " p is after the position of token t. A model with a window of W positions masks what is W "
     "or more before that position too. An engine may mask with any number below -5000 in place "
     "of minus infinity. Columns beyond the last position of the step are padding, which nobody "
     "looks at. The keys are those of the cache. gpt2 has `q` and `k` in place of the rotated "
     "ones."},
    {"blk.N.attn_probs", kScoresShape, "all", kEveryArchitecture,
     "attn_probs[h, t, p] = exp(attn_scores[h, t, p]) / sum over p of exp(attn_scores[h, t, p])",
     "The softmax of `attn_scores`: each row of positions sums to 1. Masked positions are 0."},
    {"blk.N.attn_mix", "[tokens, heads * value_size]", "ops all", kEveryArchitecture,
     "attn_mix[t, head h] = sum over p of attn_probs[h, t, p] * v[p, head h / (heads / kv_heads)]",
     "Before the output projection, the heads one after another. The values `v` are those of the "
     "cache."},
    {"blk.N.attn_out", "[tokens, width]", "ops all", kEveryArchitecture,
     "attn_out = attn_output.weight · attn_mix + attn_output.bias",
     "Before `residual_scale` (granite) and before the sum with the residual stream."},
    {"blk.N.attn_residual", "[tokens, width]", "ops all", kEveryArchitecture,
     "attn_residual = x + residual_scale * attn_out",
     "x is the input of the layer: `embedding` or the `output` of the layer before. "
     "`residual_scale` is 1 except in granite."},
    {"blk.N.ffn_norm", "[tokens, width]", "ops all", kEveryArchitecture,
     "ffn_norm = x / sqrt(mean(x^2) + epsilon) * ffn_norm.weight",
     "x is `attn_residual`. In gpt2 as `attn_norm` there, with ffn_norm.weight and ffn_norm.bias."},
    {"blk.N.ffn_gate", "[tokens, feed_forward]", "ops all", kAllButGpt2,
     "ffn_gate = ffn_gate.weight · ffn_norm + ffn_gate.bias",
     "Before the activation. phi3 takes the first half of ffn_up.weight · ffn_norm + ffn_up.bias."},
    {"blk.N.ffn_up", "[tokens, feed_forward]", "ops all", kEveryArchitecture,
     "ffn_up = ffn_up.weight · ffn_norm + ffn_up.bias",
     "Before the activation. phi3 takes the second half of that product."},
    {"blk.N.ffn_act", "[tokens, feed_forward]", "ops all", kEveryArchitecture,
     "ffn_act = silu(ffn_gate) * ffn_up",
     "silu(x) = x / (1 + exp(-x)). In gpt2: gelu(ffn_up), in the form with tanh: gelu(x) = 0.5 * x "
     "* (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))."},
    {"blk.N.ffn_out", "[tokens, width]", "ops all", kEveryArchitecture,
     "ffn_out = ffn_down.weight · ffn_act + ffn_down.bias",
     "Before `residual_scale` (granite) and before the sum with the residual stream."},
    {"blk.N.output", "[tokens, width]", "layers ops all", kEveryArchitecture,
     "output = attn_residual + residual_scale * ffn_out",
     "What the layer hands to the next one. `residual_scale` is 1 except in granite."},
    {"final_norm", "[tokens, width]", "layers ops all", kEveryArchitecture,
     "final_norm = x / sqrt(mean(x^2) + epsilon) * output_norm.weight",
     "x is the `output` of the last layer. In gpt2 as `attn_norm` there, with output_norm.weight "
     "and output_norm.bias."},
    {"logits", "[tokens, vocabulary]", "logits layers ops all", kEveryArchitecture,
     "logits = (output.weight · final_norm + output.bias) / logit_scale",
     "Before temperature, penalties and softmax. A file without output.weight uses "
     "token_embd.weight in its place. `logit_scale` is 1 except in granite. A trace may hold the "
     "last rows of a step alone: most engines compute no others."},
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
