// The weight of keys and values in latent attention (DeepSeek): whole in one file, in two tensors
// in the other. Within this folder.
#pragma once

#include "audit/sides.h"

namespace lockstep::audit {

// GGUF files have `attn_kv_b` (for each head its rows of keys, then those of values), or `attn_k_b`
// (the rows of keys, for each head transposed) and `attn_v_b`. Of such a pair the side with more
// bits a weight is laid out as the other one is, in memory of its own.
void lay_out_latent(Sides& sides);

}  // namespace lockstep::audit
