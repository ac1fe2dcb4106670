// What to forge: an architecture with its sizes and constants, the formats, and a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/value.h"

namespace lockstep::forge {

// Tensors that divide the rope frequencies.
struct RopeFactors {
  enum class Kind {
    kNone,
    kShared,     // rope_freqs: Llama 3.1's, slow pairs slowed by `factor`
    kLongShort,  // rope_factors_long and _short: Phi-3's, by the context asked for
  };
  Kind kind = Kind::kNone;
  double factor = 8;                // kShared only; the other has context / original_context
  int64_t original_context = 8192;  // what the model was trained on before it was extended
};

// Metadata that scales positions.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kYarn };
  Kind kind = Kind::kNone;
  double factor = 1;
  int64_t original_context = 0;  // kYarn only
  double sharpening = 0;         // of the scores of latent attention ("mscale_all_dim"); kYarn only
};

struct Spec {
  std::string name = "forged";  // general.name
  std::string arch = "llama";
  int64_t layers = 2;
  int64_t width = 64;
  int64_t heads = 4;
  int64_t kv_heads = 0;    // 0: as many as heads
  int64_t head_size = 0;   // 0: width / heads
  int64_t value_size = 0;  // 0: the head size
  // Of latent attention; 0: the width, and none for queries.
  int64_t latent = 0;
  int64_t query_latent = 0;
  int64_t feed_forward = 192;
  int64_t experts = 0;              // 0: none
  int64_t experts_used = 0;         // for each token
  int64_t expert_feed_forward = 0;  // 0: feed_forward
  int64_t shared_feed_forward = 0;  // of the expert that all tokens share; 0: there is none
  int64_t dense_layers = 0;         // so many of the first layers have no experts
  int64_t expert_groups = 0;        // 0: no groups
  int64_t expert_groups_used = 0;
  double expert_scale = 1;       // of the weights of the chosen
  bool sigmoid_experts = false;  // scores by the sigmoid, and their sum is 1, as in DeepSeek V3
  int64_t vocabulary = 256;
  int64_t context = 256;
  int64_t window = 0;  // 0: none
  double epsilon = 1e-5;
  double rope_base = 10000;
  int64_t rope_dims = 0;  // 0: the head size
  RopeFactors rope_factors{};
  RopeScaling rope_scaling{};
  // Granite's; an attention scale of 0 is 1 / sqrt(head size).
  double embedding_scale = 1;
  double residual_scale = 1;
  double attention_scale = 0;
  double logit_scale = 1;  // logits are divided by it
  bool tied = false;       // no output matrix of its own
  bool biases = false;  // those that the architecture may have; what it must have is always there
  std::string type = "f16";  // a recipe (quant/recipe.h) or a format for all matrices
  bool pure = false;         // that recipe's main format for all matrices, no mix
  uint64_t seed = 0;
  std::vector<gguf::Entry> tokenizer{};  // "tokenizer.*"; empty: none, the model runs on ids
};

// The tokenizer entries of a model file.
Result<std::vector<gguf::Entry>> read_tokenizer(const std::string& path);
int64_t token_count(const std::vector<gguf::Entry>& tokenizer);  // 0 where it has no list

}  // namespace lockstep::forge
