// Reads from top to bottom as the model runs: embedding, layers (attention, then feed-forward,
// each added to the residual stream), final norm, logits. What differs between architectures is
// their row's (archs.h), what differs between layers is the Config's. Every value has a name; those
// in lockstep/detail/checkpoints.h are checkpoints, the steps between them are marked inner.
#include "model/forward.h"

#include <fmt/format.h>

#include "model/program_builder.h"
#include "model/rope_factors.h"

namespace lockstep::model {
namespace {

using op::ValueId;

class ForwardPass : ProgramBuilder {
 public:
  ForwardPass(const Config& config, int64_t context_length, Weights& weights)
      : ProgramBuilder(config, context_length, weights) {
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

    const std::string second =
        arch_.norms == Norms::kBeforeRenamed ? "post_attention_norm" : "ffn_norm";
    const ValueId read = shared ? seen : before ? norm(middle, "ffn_norm", second) : middle;
    out = feed_forward(read);
    if (after) out = norm(out, "ffn_post_norm", "post_ffw_norm");
    return residual(middle, out, "output");
  }

  ValueId attention(ValueId seen) {
    const bool windowed = config_.is_windowed(layer_);
    auto [q, k, v] = arch_.latent ? latent_heads(seen) : queries_keys_values(seen);
    if (config_.is_rotated(layer_) && !arch_.latent) {
      const op::Rope& rope = windowed ? windowed_rope_ : rope_;
      q = add(rope, {q}, value("q_rope", config_.heads * config_.head_size));
      k = add(rope, {k}, value("k_rope", config_.kv_heads * config_.head_size));
    }
    op::Attention attention{
        .heads = config_.heads,
        .kv_heads = config_.kv_heads,
        .head_size = config_.head_size,
        .value_size = config_.value_size,
        .scale = config_.attention_scale,
        .soft_cap = config_.score_cap,
        .window = windowed ? config_.window : 0,
    };
    if (arch_.sinks)
      attention.sinks = weights_.vector(prefix() + "attn_sinks.weight", config_.heads);
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

  // Queries and keys as attention takes them. Of each head the last numbers are rotated; those of
  // keys are the same for all heads. Keys and values are written out for every head.
  Heads latent_heads(ValueId seen) {
    const int64_t heads = config_.heads, width = config_.width, size = config_.head_size;
    const int64_t rotated = rope_.dims, still = size - rotated;
    const int64_t short_row = config_.latent.keys_values, of_queries = config_.latent.queries;

    ValueId read = of_queries > 0 ? linear(seen, "q_a", "attn_q_a", width, of_queries) : seen;
    const ValueId kv = linear(seen, "kv_a", "attn_kv_a_mqa", width, short_row + rotated);
    if (of_queries > 0) read = norm(read, "q_a_norm", "attn_q_a_norm", of_queries, of_queries, 1);
    const ValueId own = add(op::Slice{0}, {kv}, inner("kv_a_own", short_row));
    const ValueId normed = norm(own, "kv_a_norm", "attn_kv_a_norm", short_row, short_row, 1);
    const ValueId q = of_queries > 0 ? linear(read, "q", "attn_q_b", of_queries, heads * size)
                                     : linear(read, "q", "attn_q", width, heads * size);
    const auto [k_still, v] = keys_and_values(normed, still);

    const ValueId q_last =
        add(op::HeadParts{heads, still, rotated}, {q}, inner("q_last", heads * rotated));
    const ValueId q_pe = add(rope_, {q_last}, value("q_pe", heads * rotated));
    const ValueId k_last = add(op::Slice{short_row}, {kv}, inner("k_last", rotated));
    const ValueId k_pe = add(rope_, {k_last}, value("k_pe", rotated));
    return {add(op::HeadParts{heads, 0, still}, {q, q_pe}, value("q_rope", heads * size)),
            add(op::HeadParts{heads, 0, still}, {k_still, k_pe}, value("k_rope", heads * size)), v};
  }

  struct KeysAndValues {
    ValueId k, v;  // k: heads of `still` numbers or more, of which those count
  };

  // One weight has both, head by head; newer files have it in two, that of keys transposed.
  KeysAndValues keys_and_values(ValueId normed, int64_t still) {
    const int64_t heads = config_.heads, size = config_.value_size;
    const int64_t short_row = config_.latent.keys_values;
    if (has("attn_kv_b.weight")) {
      const ValueId both = linear(normed, "kv_b", "attn_kv_b", short_row, heads * (still + size),
                                  arch_.other_biases, kInner);
      return {both, add(op::HeadParts{heads, still, size}, {both}, value("v", heads * size))};
    }
    const op::Linear of_keys{
        weights_.transposed_matrices(prefix() + "attn_k_b.weight", heads, still, short_row), {}};
    const ValueId k = add(of_keys, {normed}, inner("k_still", heads * still));
    const op::Linear of_values{
        weights_.matrices(prefix() + "attn_v_b.weight", heads, size, short_row), {}};
    return {k, add(of_values, {normed}, value("v", heads * size))};
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
    if (config_.has_experts(layer_)) return experts(read);
    return feed_forward(read, "ffn", "", config_.feed_forward);
  }

  // Of all tokens alike: the layer's own, or that of an expert that all share.
  ValueId feed_forward(ValueId read, const std::string& name, const std::string& weights,
                       int64_t hidden) {
    using FeedForward = Architecture::FeedForward;
    std::vector<ValueId> inputs;
    if (arch_.feed_forward == FeedForward::kGatedFused) {
      const ValueId both = linear(read, name + "_gate_up", "ffn_up" + weights, config_.width,
                                  2 * hidden, arch_.other_biases, kInner);
      inputs = {slice(both, name + "_gate", 0, hidden), slice(both, name + "_up", hidden, hidden)};
    } else {
      if (arch_.feed_forward == FeedForward::kGated)
        inputs.push_back(linear(read, name + "_gate", "ffn_gate" + weights, config_.width, hidden));
      inputs.push_back(linear(read, name + "_up", "ffn_up" + weights, config_.width, hidden));
    }
    const ValueId act = add(op::Activate{arch_.activation}, inputs, value(name + "_act", hidden));
    return linear(act, name + "_out", "ffn_down" + weights, hidden, config_.width);
  }

  // A few of many, which a router chooses for each token; some models add one that all share.
  ValueId experts(ValueId read) {
    const Experts& experts = config_.experts;
    const ValueId router = linear(read, "ffn_router", "ffn_gate_inp", config_.width, experts.count,
                                  arch_.expert_biases);
    op::Choose choose{experts.scoring, {}, experts.groups, experts.groups_used};
    if (has("exp_probs_b.bias"))
      choose.bias = weights_.vector(prefix() + "exp_probs_b.bias", experts.count);
    // DeepSeek's own rule: V3, which corrects the scores, looks at two of a group, V2 at one.
    choose.group_scores = choose.bias ? 2 : 1;
    const ValueId choice = add(choose, {router}, value("ffn_choice", experts.used));
    const ValueId weights = add(op::Weigh{experts.scoring, experts.normalize, experts.scale},
                                {router, choice}, value("ffn_weights", experts.used));

    const int64_t hidden = experts.feed_forward;
    const ValueId gate =
        expert_linear(read, choice, "ffn_expert_gate", "ffn_gate_exps", config_.width, hidden);
    const ValueId up =
        expert_linear(read, choice, "ffn_expert_up", "ffn_up_exps", config_.width, hidden);
    const ValueId act = add(op::Activate{arch_.activation}, {gate, up},
                            value("ffn_expert_act", experts.used * hidden));
    const ValueId outs =
        expert_linear(act, choice, "ffn_expert_out", "ffn_down_exps", hidden, config_.width);
    if (experts.shared_feed_forward == 0)
      return add(op::MixExperts{}, {weights, outs}, value("ffn_out", config_.width));

    const ValueId chosen =
        add(op::MixExperts{}, {weights, outs}, value("ffn_experts", config_.width));
    ValueId shared = feed_forward(read, "ffn_shared", "_shexp", experts.shared_feed_forward);
    if (arch_.shared_gate) {
      const op::Linear of_gate{
          weights_.vector(prefix() + "ffn_gate_inp_shexp.weight", config_.width), {}};
      const ValueId number = add(of_gate, {read}, value("ffn_shared_router", 1));
      shared = add(op::Gate{}, {shared, number}, inner("ffn_shared_gated", config_.width));
    }
    return add(op::Add{}, {chosen, shared}, value("ffn_out", config_.width));
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

  op::Rope rope_, windowed_rope_;
};

}  // namespace

op::Program forward_pass(const Config& config, int64_t context_length, Weights& weights) {
  return ForwardPass(config, context_length, weights).build();
}

}  // namespace lockstep::model
