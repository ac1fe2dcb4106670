// What the kernels of generation are called with: one token, few launches a layer. All pointers are
// the device's, or of pinned memory that the device writes to.
#pragma once

#include <cuda_runtime_api.h>

#include "exec/cuda/calls.h"

namespace lockstep::exec::cuda {

inline constexpr int kProductWarps = 24;  // of a block
inline constexpr int kPlanes = 4;         // of a weight
inline constexpr int kMostProductsShared = 216 * 1024;

// A row, normalized or as it is, times the rows of up to kMostProducts weights; then what follows
// on each number of the results.
struct TokenProducts {
  struct Product {
    WeightView weight;
    const float* bias = nullptr;  // may be null
    float* out = nullptr;
    // Blocks from first_block on share the rows; the first ones have one row more.
    int first_block = 0, block_rows = 0, longer_blocks = 0;
    // How a block's warps share its rows: as tiles of 2^rows_log rows, and those in so many parts
    // of so many steps (the last one may have fewer), which the warps take in turn.
    int rows_log = 0, tiles = 0, parts = 0, part_steps = 0;
    uint32_t inverse_parts = 0;  // 2^32 / parts, rounded up; 0: one part
    int first_sum = 0;           // where a block's sums of parts start
    int early_rows = 0;          // of a block, fetched at once
  };

  const float* x = nullptr;
  int64_t columns = 0;
  bool wide = false;  // whether the model's rows are: all launches of a pass take one kernel
  // The norm: null where x is taken as it is.
  const float* norm_weight = nullptr;
  const float* norm_bias = nullptr;
  float* normed = nullptr;
  float epsilon = 0;
  float inverse_count = 0;  // 1 / columns
  bool layer_norm = false;

  Product products[kMostProducts];
  int count = 0;
  bool paired = false;  // products 0 and 1 have the same rows, and a block takes both of a row

  // What follows, each where its result has a place: activation (times the second of a pair),
  // factor, addend.
  RowTask::Kind activation{};
  float* activated = nullptr;
  float factor = 1;
  float* scaled = nullptr;
  const float* addend = nullptr;
  float* sum = nullptr;
  // Each block's largest result of all that, for the device and for the host; may be null.
  BestLogit* best = nullptr;
  BestLogit* host_best = nullptr;

  // By plan_products(): blocks, and what one of them holds in shared memory.
  int blocks = 0;
  bool takes_codes = false, takes_floats = false;
  int floats_at = 0, sums_at = 0, shared_bytes = 0;
};

// Fills in how the work is shared on a GPU of that many multiprocessors; false where rows are too
// long for this kernel, or no multiple of four.
bool plan_products(TokenProducts& call, int multiprocessors);
// Whether the threads of a block cannot take so many numbers at once, four each.
inline bool is_wide(int64_t columns) {
  return columns > 4 * 32 * kProductWarps;
}
void run_token_products(const TokenProducts& call, cudaStream_t stream);

// Everything between the projections of a token and its mixed values: norms of heads, rotation, the
// cache, attention.
struct TokenAttention {
  // One of q and k on its way; null pointers where a step does not exist.
  struct Heads {
    const float* raw = nullptr;  // [heads * head_size]
    const float* norm_weight = nullptr;
    float* normed = nullptr;
    float* rotated = nullptr;
  };
  Heads q, k;
  float epsilon = 0;
  const float* v = nullptr;
  const float* cosines = nullptr;  // [pairs]; null: no rotation
  const float* sines = nullptr;
  int pairs = 0;
  bool adjacent = false;
  // q, tokens and rows of it are not used.
  AttentionCall attention;
  uint32_t* arrived = nullptr;  // [heads] zeros, and zeros again afterwards
};

// Whether heads of this size fit the kernel.
bool fits_token_attention(const AttentionCall& call);
// How many multiprocessors its blocks fill. Where the launch before leaves them free, they are
// there and ready when it ends.
int multiprocessors_for(const AttentionCall& call);
void run_token_attention(const TokenAttention& call, cudaStream_t stream);

// Values of a token that are copied to places side by side.
struct KeptValue {
  const float* from = nullptr;
  int64_t place = 0;  // in numbers
  int64_t count = 0;
};
struct KeepCall {
  const KeptValue* values = nullptr;  // on the device
  int64_t count = 0;
  float* out = nullptr;
};
void run_keep(const KeepCall& call, cudaStream_t stream);

}  // namespace lockstep::exec::cuda
