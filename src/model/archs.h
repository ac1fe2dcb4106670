// The architectures that can run: one row each in archs.cpp.
#pragma once

#include <span>
#include <string_view>

#include "op/op.h"

namespace lockstep::model {

struct Architecture {
  enum class Positions { kLearned, kRopeAdjacent, kRopeHalves };
  enum class FeedForward {
    kPlain,       // down(f(up(x)))
    kGated,       // down(f(gate(x)) * up(x))
    kGatedFused,  // the same; ffn_up holds gate, then up
  };
  // A bias that the file has is always used; some architectures are wrong without theirs.
  enum class Bias { kIfPresent, kRequired };

  std::string_view name;  // as in general.architecture
  op::Norm::Kind norm;
  Positions positions;
  bool fused_qkv;     // attn_qkv holds q, k and v one after another
  bool head_norms;    // q and k of each head are normalized before the rotation
  Bias qkv_bias;      // of q, k, v
  Bias other_biases;  // of the other projections and the norms
  FeedForward feed_forward;
  op::Activate::Kind activation;
  bool scales;  // embedding, residual, attention and logit scales from the metadata
};

std::span<const Architecture> architectures();
const Architecture* find_architecture(std::string_view name);  // nullptr where unknown

}  // namespace lockstep::model
