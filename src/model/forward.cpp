// Reads from top to bottom as the model runs: embedding, layers (attention, then feed-forward,
// each added to the residual stream), final norm, logits. What differs between architectures is
// their row's (archs.h), what differs between layers is the Config's. Every value has a name; those
// in lockstep/detail/checkpoints.h are checkpoints, the steps between them are marked inner.
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
    windowed_rope_ = config.windowed_rope;
    if (arch_.positions == Architecture::Positions::kLearned) return;
    rope_.factors = rope_factors(config, context_length, weights);
    if (arch_.windowed_rope_scaled) windowed_rope_.factors = rope_.factors;
  }

  op::Program build() {
    ValueId stream = embedding();
    for (layer_ = 0; layer_ < config_.layers; ++layer_) stream = layer(stream);
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

  ValueId layer(ValueId stream) {
    using Norms = Architecture::Norms;
    const bool before = arch_.norms != Norms::kAfter;
    const bool after = arch_.norms == Norms::kAfter || arch_.norms == Norms::kBoth;
    const bool shared = arch_.norms == Norms::kShared ||
                        (arch_.norms == Norms::kBeforeOrShared && !has("ffn_norm.weight"));

    const ValueId seen = before ? norm(stream, "attn_norm", "attn_norm") : stream;
    ValueId out = attention(seen);
    if (after) out = norm(out, "attn_post_norm", "post_attention_norm");
    // Blocks that stand side by side are one sum: engines have no name for its first half.
    const ValueId middle =
        shared ? residual(stream, out, "attn_sum", kInner) : residual(stream, out, "attn_residual");

    const ValueId read = shared ? seen : before ? norm(middle, "ffn_norm", "ffn_norm") : middle;
    out = feed_forward(read);
    if (after) out = norm(out, "ffn_post_norm", "post_ffw_norm");
    return residual(middle, out, "output");
  }

  ValueId attention(ValueId seen) {
    const bool windowed = config_.is_windowed(layer_);
    auto [q, k, v] = queries_keys_values(seen);
    if (config_.is_rotated(layer_)) {
      const op::Rope& rope = windowed ? windowed_rope_ : rope_;
      q = add(rope, {q}, value("q_rope", config_.heads * config_.head_size));
      k = add(rope, {k}, value("k_rope", config_.kv_heads * config_.head_size));
    }
    const op::Attention attention{
        .heads = config_.heads,
        .kv_heads = config_.kv_heads,
        .head_size = config_.head_size,
        .value_size = config_.value_size,
        .scale = config_.attention_scale,
        .soft_cap = config_.score_cap,
        .window = windowed ? config_.window : 0,
    };
    const int64_t mix_width = config_.heads * config_.value_size;
    // Values are numbered, and so recorded, in order of execution.
    const ValueId scores = value("attn_scores", config_.heads, op::Value::Shape::kScores);
    const ValueId probs = value("attn_probs", config_.heads, op::Value::Shape::kScores);
    const ValueId mix = value("attn_mix", mix_width);
    program_.ops.push_back({attention, {q, k, v}, {mix, scores, probs}, layer_});
    return linear(mix, "attn_out", "attn_output", mix_width, config_.width);
  }

  struct Heads {
    ValueId q, k, v;
  };

  Heads queries_keys_values(ValueId seen) {
    const int64_t q_width = config_.heads * config_.head_size;
    const int64_t k_width = config_.kv_heads * config_.head_size;
    const int64_t v_width = config_.kv_heads * config_.value_size;
    const bool fused = !has("attn_q.weight") && (arch_.fused_qkv || has("attn_qkv.weight"));
    if (!fused)
      return {with_query_norm(seen, "q", q_width), with_query_norm(seen, "k", k_width),
              linear(seen, "v", "attn_v", config_.width, v_width, arch_.qkv_bias)};
    const ValueId qkv = linear(seen, "qkv", "attn_qkv", config_.width, q_width + k_width + v_width,
                               arch_.qkv_bias, kInner);
    return {slice(qkv, "q", 0, q_width), slice(qkv, "k", q_width, k_width),
            slice(qkv, "v", q_width + k_width, v_width)};
  }

  // q or k from its own weight, normalized where the architecture does that.
  ValueId with_query_norm(ValueId seen, const std::string& name, int64_t width) {
    using QueryNorms = Architecture::QueryNorms;
    const std::string weight = "attn_" + name;
    const bool own = arch_.query_norms == QueryNorms::kOwnHeadsIfPresent;
    if (arch_.query_norms == QueryNorms::kNone || (own && !has(weight + "_norm.weight")))
      return linear(seen, name, weight, config_.width, width, arch_.qkv_bias);
    const ValueId raw =
        linear(seen, name + "_projection", weight, config_.width, width, arch_.qkv_bias, kInner);
    const int64_t group = arch_.query_norms == QueryNorms::kRows ? width : config_.head_size;
    return norm(raw, name, weight + "_norm", width, group, own ? width / group : 1);
  }

  ValueId feed_forward(ValueId read) {
    using FeedForward = Architecture::FeedForward;
    const int64_t hidden = config_.feed_forward;
    std::vector<ValueId> inputs;
    if (arch_.feed_forward == FeedForward::kGatedFused) {
      const ValueId both = linear(read, "ffn_gate_up", "ffn_up", config_.width, 2 * hidden,
                                  arch_.other_biases, kInner);
      inputs = {slice(both, "ffn_gate", 0, hidden), slice(both, "ffn_up", hidden, hidden)};
    } else {
      if (arch_.feed_forward == FeedForward::kGated)
        inputs.push_back(linear(read, "ffn_gate", "ffn_gate", config_.width, hidden));
      inputs.push_back(linear(read, "ffn_up", "ffn_up", config_.width, hidden));
    }
    const ValueId act = add(op::Activate{arch_.activation}, inputs, value("ffn_act", hidden));
    return linear(act, "ffn_out", "ffn_down", hidden, config_.width);
  }

  ValueId residual(ValueId stream, ValueId branch, const std::string& name,
                   bool checkpoint = true) {
    if (config_.residual_scale != 1)
      branch = add(
          op::Scale{config_.residual_scale}, {branch},
          inner(program_.value(branch).name.substr(prefix().size()) + "_scaled", config_.width));
    return add(op::Add{}, {stream, branch},
               value(name, config_.width, op::Value::Shape::kRows, checkpoint));
  }

  void logits(ValueId normed) {
    // A file without its own output matrix uses the embedding table ("tied").
    const std::string name = weights_.has("output.weight") ? "output.weight" : "token_embd.weight";
    const op::Linear head{weights_.matrix(name, config_.vocabulary, config_.width),
                          bias("output", config_.vocabulary, arch_.output_bias)};
    const int64_t width = config_.vocabulary;
    const bool divided = config_.logit_divisor != 1, capped = config_.logit_cap > 0;
    program_.head =
        add(head, {normed},
            divided || capped ? inner("output_projection", width) : value("logits", width));
    ValueId last = program_.head;
    if (divided)
      last = add(op::Scale{1 / config_.logit_divisor}, {last},
                 capped ? inner("output_scaled", width) : value("logits", width));
    if (capped) add(op::SoftCap{config_.logit_cap}, {last}, value("logits", width));
  }

  // The building blocks.

  static constexpr bool kInner = false;

  std::string prefix() const { return layer_ < 0 ? "" : fmt::format("blk.{}.", layer_); }

  // Whether the file has a tensor of the layer.
  bool has(const std::string& name) const { return weights_.has(prefix() + name); }

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

  // `weights`: how many groups have a weight of their own, 1 where all share one.
  ValueId norm(ValueId in, const std::string& name, const std::string& weight, int64_t width,
               int64_t group, int64_t weights) {
    op::Norm what;
    what.kind = arch_.norm;
    what.group = group;
    what.epsilon = config_.norm_epsilon;
    const std::string tensor = prefix() + weight + ".weight";
    what.weight =
        weights > 1 ? weights_.vectors(tensor, weights, group) : weights_.vector(tensor, group);
    if (arch_.norm == op::Norm::Kind::kLayer && width == group)
      what.bias = bias(weight, group, arch_.norm_bias);
    return add(what, {in}, value(name, width));
  }

  ValueId norm(ValueId in, const std::string& name, const std::string& weight) {
    return norm(in, name, weight, config_.width, config_.width, 1);
  }

  const Config& config_;
  const Architecture& arch_;
  Weights& weights_;
  op::Rope rope_, windowed_rope_;
  op::Program program_;
  int64_t layer_ = -1;
};

}  // namespace

op::Program forward_pass(const Config& config, int64_t context_length, Weights& weights) {
  return ForwardPass(config, context_length, weights).build();
}

}  // namespace lockstep::model
