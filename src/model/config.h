// The sizes and constants of a model, from its metadata.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "model/archs.h"

namespace lockstep::model {

// A mixture of experts in the place of a feed-forward block.
struct Experts {
  int64_t count = 0;  // 0: none
  int64_t used = 0;   // for each token
  int64_t feed_forward = 0;
  int64_t shared_feed_forward = 0;  // of the expert that all tokens share; 0: there is none
  int64_t dense_layers = 0;         // so many of the first layers have none
  op::Scoring scoring = op::Scoring::kSoftmax;
  int64_t groups = 1;
  int64_t groups_used = 1;
  bool normalize = true;
  double scale = 1;  // of the weights
};

// The short rows that latent attention makes queries, keys and values from.
struct Latent {
  int64_t keys_values = 0;  // 0: attention is not latent
  int64_t queries = 0;      // 0: queries are made from the row itself
};

struct Config {
  const Architecture* arch = nullptr;
  int64_t layers = 0;
  int64_t width = 0;  // of the residual stream ("embedding length")
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;   // of queries and keys
  int64_t value_size = 0;  // of values
  Latent latent;
  int64_t feed_forward = 0;
  Experts experts;
  int64_t vocabulary = 0;      // rows of the embedding table
  int64_t context_length = 0;  // trained
  int64_t window = 0;          // positions that windowed layers see; 0: no layer has a window
  std::vector<bool> windowed;  // by layer, where the file says which have it
  double norm_epsilon = 0;
  double attention_scale = 1;
  double score_cap = 0;  // 0: none
  double logit_cap = 0;
  // Granite's and Gemma's; 1 elsewhere.
  double embedding_scale = 1;
  double residual_scale = 1;
  double logit_divisor = 1;
  // All but the factors, which are tensors and depend on the context (forward.cpp).
  op::Rope rope;
  op::Rope windowed_rope;  // of layers with a window
  int64_t rope_original_context = 0;

  bool is_windowed(int64_t layer) const;
  bool is_rotated(int64_t layer) const;  // q and k of the layer
  bool has_experts(int64_t layer) const {
    return experts.count > 0 && layer >= experts.dense_layers;
  }
};

// What the file says, with everything that is missing, mistyped or contradictory added to
// `problems`; the result is of use only where none was.
Config read_config(const gguf::File& file, std::vector<std::string>& problems);

}  // namespace lockstep::model
