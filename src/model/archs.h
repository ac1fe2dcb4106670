// The architectures that can run: one row each in archs.cpp.
#pragma once

#include <span>
#include <string_view>

#include "op/op.h"

namespace lockstep::model {

// What a row does not name is as in llama.
struct Architecture {
  enum class Positions { kLearned, kRopeAdjacent, kRopeHalves };
  // Where the norms of a layer are. Both blocks are added to the residual stream.
  enum class Norms {
    kBefore,          // of attention and of the feed-forward block
    kBeforeRenamed,   // the same; files call the second post_attention_norm
    kAfter,           // of what each block gives
    kBoth,            // before and after
    kShared,          // one, before both blocks, which then stand side by side
    kBeforeOrShared,  // kBefore where the file has the second norm
  };
  // Norms of q and k before the rotation.
  enum class QueryNorms {
    kNone,
    kHeads,              // each head by itself, all with one weight
    kRows,               // the whole row
    kOwnHeadsIfPresent,  // each head with a weight of its own, where the file has it
  };
  enum class FeedForward {
    kPlain,       // down(f(up(x)))
    kGated,       // down(f(gate(x)) * up(x))
    kGatedFused,  // the same; ffn_up holds gate, then up
  };
  // Where there may be a bias, one that the file has is used; some architectures are wrong without
  // theirs.
  enum class Bias { kNone, kIfPresent, kRequired };

  std::string_view name;  // as in general.architecture

  op::Norm::Kind norm = op::Norm::Kind::kRms;
  Norms norms = Norms::kBefore;
  QueryNorms query_norms = QueryNorms::kNone;
  Bias qkv_bias = Bias::kIfPresent;      // of q, k, v
  Bias other_biases = Bias::kIfPresent;  // of the other projections
  Bias norm_bias = Bias::kIfPresent;     // where norms take the mean off
  Bias output_bias = Bias::kIfPresent;   // of the logits

  // Keys and values of all heads are made from one short row a token, and a part of each key, which
  // all heads share, is rotated by itself.
  bool latent = false;

  // attn_qkv holds q, k and v one after another. A file that has it otherwise is read as it is.
  bool fused_qkv = false;
  FeedForward feed_forward = FeedForward::kGated;
  op::Activate::Kind activation = op::Activate::Kind::kSilu;

  // Experts, where the file has them; a layer without them has the block above.
  bool experts = false;                         // the architecture is nothing without them
  op::Scoring scoring = op::Scoring::kSoftmax;  // where the file says nothing
  bool normalized_experts = true;               // weights of the chosen sum to 1; the same
  Bias expert_biases = Bias::kNone;             // of the router and of the experts
  bool shared_expert = false;                   // there is one that all tokens share
  bool shared_gate = false;                     // and that has a gate

  Positions positions = Positions::kRopeAdjacent;
  int64_t unrotated_period = 0;  // of so many layers the last does not rotate; 0: all do

  // Attention to the last positions alone, where the file gives a window.
  int64_t window = 0;                // where the file says nothing
  int64_t window_period = 0;         // of so many layers the last sees everything; 0: none does
  bool yarn_whole_pairs = true;      // where the file extends the context by YaRN
  bool windowed_rope_scaled = true;  // whether windowed layers extend the context as others do
  double windowed_rope_base = 0;  // of windowed layers, where the file says nothing; 0: as others
  bool sinks = false;             // each head has a score more than there are keys
  double score_cap = 0;           // of the scores, where the file says nothing; 0: none
  double logit_cap = 0;
  // Files of so many layers scale scores by the width of a head's part of the row, not of the head.
  int64_t layers_scaled_by_width = 0;

  bool scales = false;  // embedding, residual, attention and logit scales from the metadata
  bool embedding_by_root = false;  // embeddings are multiplied by the root of their width
};

std::span<const Architecture> architectures();
const Architecture* find_architecture(std::string_view name);  // nullptr where unknown

}  // namespace lockstep::model
