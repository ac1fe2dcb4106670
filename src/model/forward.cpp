// Reads from top to bottom as the model runs: embedding, layers (attention, then feed-forward,
// each added to the residual stream), final norm, logits. Every value has a name; those in
// lockstep/detail/checkpoints.h are checkpoints, the steps between them are marked inner.
#include "model/forward.h"

#include <fmt/format.h>

#include "model/rope_factors.h"

namespace lockstep::model {
namespace {

using op::ValueId;

class ForwardPass {
 public:
  ForwardPass(const Config& config, int64_t context_length, Weights& weights)
      : config_(config), arch_(*config.arch), weights_(weights) {
    program_.layers = config.layers;
    program_.vocabulary = config.vocabulary;
    program_.context_length = context_length;
    rope_ = config.rope;
    if (arch_.positions != Architecture::Positions::kLearned)
      rope_.factors = rope_factors(config, context_length, weights);
  }

  op::Program build() {
    ValueId stream = embedding();
    for (layer_ = 0; layer_ < config_.layers; ++layer_) stream = feed_forward(attention(stream));
    layer_ = -1;
    logits(norm(stream, "final_norm", "output_norm"));
    return std::move(program_);
  }

 private:
  ValueId embedding() {
    const int64_t width = config_.width;
    const op::Weight table = weights_.matrix("token_embd.weight", config_.vocabulary, width);
    const auto tokens = op::Embed{table, op::Embed::Index::kToken};
    if (arch_.positions == Architecture::Positions::kLearned) {
      const op::Weight positions =
          weights_.matrix("position_embd.weight", config_.context_length, width);
      const ValueId token = add(tokens, {}, inner("token_embedding", width));
      const ValueId position = add(op::Embed{positions, op::Embed::Index::kPosition}, {},
                                   inner("position_embedding", width));
      return add(op::Add{}, {token, position}, value("embedding", width));
    }
    if (config_.embedding_scale == 1) return add(tokens, {}, value("embedding", width));
    const ValueId token = add(tokens, {}, inner("token_embedding", width));
    return add(op::Scale{config_.embedding_scale}, {token}, value("embedding", width));
  }

  ValueId attention(ValueId stream) {
    const ValueId normed = norm(stream, "attn_norm", "attn_norm");
    auto [q, k, v] = queries_keys_values(normed);
    if (arch_.positions != Architecture::Positions::kLearned) {
      q = add(rope_, {q}, value("q_rope", config_.heads * config_.head_size));
      k = add(rope_, {k}, value("k_rope", config_.kv_heads * config_.head_size));
    }
    const op::Attention attention{
        .heads = config_.heads,
        .kv_heads = config_.kv_heads,
        .head_size = config_.head_size,
        .value_size = config_.value_size,
        .scale = config_.attention_scale,
        .window = config_.window,
    };
    const int64_t mix_width = config_.heads * config_.value_size;
    // Values are numbered, and so recorded, in order of execution.
    const ValueId scores = value("attn_scores", config_.heads, op::Value::Shape::kScores);
    const ValueId probs = value("attn_probs", config_.heads, op::Value::Shape::kScores);
    const ValueId mix = value("attn_mix", mix_width);
    program_.ops.push_back({attention, {q, k, v}, {mix, scores, probs}, layer_});
    const ValueId out = linear(mix, "attn_out", "attn_output", mix_width, config_.width);
    return residual(stream, out, "attn_residual");
  }

  struct Heads {
    ValueId q, k, v;
  };

  Heads queries_keys_values(ValueId normed) {
    const int64_t q_width = config_.heads * config_.head_size;
    const int64_t k_width = config_.kv_heads * config_.head_size;
    const int64_t v_width = config_.kv_heads * config_.value_size;
    const bool normed_heads = arch_.head_norms;
    if (!arch_.fused_qkv)
      return {projection(normed, "q", q_width, normed_heads),
              projection(normed, "k", k_width, normed_heads),
              projection(normed, "v", v_width, false)};
    const ValueId qkv = linear(normed, "qkv", "attn_qkv", config_.width,
                               q_width + k_width + v_width, arch_.qkv_bias, kInner);
    return {slice(qkv, "q", 0, q_width), slice(qkv, "k", q_width, k_width),
            slice(qkv, "v", q_width + k_width, v_width)};
  }

  // q, k or v from its own weight; Qwen3 normalizes each head of q and k.
  ValueId projection(ValueId normed, const std::string& name, int64_t width, bool normed_heads) {
    const std::string weight = "attn_" + name;
    if (!normed_heads) return linear(normed, name, weight, config_.width, width, arch_.qkv_bias);
    const ValueId raw =
        linear(normed, name + "_projection", weight, config_.width, width, arch_.qkv_bias, kInner);
    return norm(raw, name, weight + "_norm", width, config_.head_size);
  }

  ValueId feed_forward(ValueId stream) {
    using FeedForward = Architecture::FeedForward;
    const int64_t hidden = config_.feed_forward;
    const ValueId normed = norm(stream, "ffn_norm", "ffn_norm");
    const op::Activate activate{arch_.activation};
    std::vector<ValueId> inputs;
    if (arch_.feed_forward == FeedForward::kGatedFused) {
      const ValueId both = linear(normed, "ffn_gate_up", "ffn_up", config_.width, 2 * hidden,
                                  arch_.other_biases, kInner);
      inputs = {slice(both, "ffn_gate", 0, hidden), slice(both, "ffn_up", hidden, hidden)};
    } else {
      if (arch_.feed_forward == FeedForward::kGated)
        inputs.push_back(linear(normed, "ffn_gate", "ffn_gate", config_.width, hidden));
      inputs.push_back(linear(normed, "ffn_up", "ffn_up", config_.width, hidden));
    }
    const ValueId act = add(activate, inputs, value("ffn_act", hidden));
    const ValueId out = linear(act, "ffn_out", "ffn_down", hidden, config_.width);
    return residual(stream, out, "output");
  }

  ValueId residual(ValueId stream, ValueId branch, const std::string& name) {
    if (config_.residual_scale != 1)
      branch = add(
          op::Scale{config_.residual_scale}, {branch},
          inner(program_.value(branch).name.substr(prefix().size()) + "_scaled", config_.width));
    return add(op::Add{}, {stream, branch}, value(name, config_.width));
  }

  void logits(ValueId normed) {
    // A file without its own output matrix uses the embedding table ("tied").
    const std::string name = weights_.has("output.weight") ? "output.weight" : "token_embd.weight";
    const op::Linear head{weights_.matrix(name, config_.vocabulary, config_.width),
                          weights_.optional_vector("output.bias", config_.vocabulary)};
    const bool divided = config_.logit_divisor != 1;
    program_.head = add(head, {normed},
                        divided ? inner("output_projection", config_.vocabulary)
                                : value("logits", config_.vocabulary));
    if (divided)
      add(op::Scale{1 / config_.logit_divisor}, {program_.head},
          value("logits", config_.vocabulary));
  }

  // The building blocks.

  static constexpr bool kInner = false;

  std::string prefix() const { return layer_ < 0 ? "" : fmt::format("blk.{}.", layer_); }

  ValueId value(const std::string& name, int64_t width,
                op::Value::Shape shape = op::Value::Shape::kRows, bool checkpoint = true) {
    program_.values.push_back({prefix() + name, width, shape, checkpoint});
    return static_cast<ValueId>(program_.values.size() - 1);
  }

  ValueId inner(const std::string& name, int64_t width) {
    return value(name, width, op::Value::Shape::kRows, kInner);
  }

  ValueId add(op::What what, std::vector<ValueId> inputs, ValueId output) {
    program_.ops.push_back({std::move(what), std::move(inputs), {output}, layer_});
    return output;
  }

  std::optional<op::Weight> bias(const std::string& weight, int64_t size, Architecture::Bias rule) {
    const std::string name = prefix() + weight + ".bias";
    if (rule == Architecture::Bias::kRequired) return weights_.vector(name, size);
    return weights_.optional_vector(name, size);
  }

  ValueId linear(ValueId in, const std::string& name, const std::string& weight, int64_t in_width,
                 int64_t out_width, Architecture::Bias bias_rule, bool checkpoint = true) {
    const op::Linear what{weights_.matrix(prefix() + weight + ".weight", out_width, in_width),
                          bias(weight, out_width, bias_rule)};
    return add(what, {in}, value(name, out_width, op::Value::Shape::kRows, checkpoint));
  }

  ValueId linear(ValueId in, const std::string& name, const std::string& weight, int64_t in_width,
                 int64_t out_width) {
    return linear(in, name, weight, in_width, out_width, arch_.other_biases);
  }

  ValueId slice(ValueId in, const std::string& name, int64_t first, int64_t width) {
    return add(op::Slice{first}, {in}, value(name, width));
  }

  ValueId norm(ValueId in, const std::string& name, const std::string& weight, int64_t width,
               int64_t group) {
    op::Norm what;
    what.kind = arch_.norm;
    what.group = group;
    what.epsilon = config_.norm_epsilon;
    what.weight = weights_.vector(prefix() + weight + ".weight", group);
    if (arch_.norm == op::Norm::Kind::kLayer) what.bias = bias(weight, group, arch_.other_biases);
    return add(what, {in}, value(name, width));
  }

  ValueId norm(ValueId in, const std::string& name, const std::string& weight) {
    return norm(in, name, weight, config_.width, config_.width);
  }

  const Config& config_;
  const Architecture& arch_;
  Weights& weights_;
  op::Rope rope_;
  op::Program program_;
  int64_t layer_ = -1;
};

}  // namespace

op::Program forward_pass(const Config& config, int64_t context_length, Weights& weights) {
  return ForwardPass(config, context_length, weights).build();
}

}  // namespace lockstep::model
