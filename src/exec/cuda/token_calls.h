// What the kernels of generation are called with: one token, few launches a layer. All pointers are
// the device's, or of pinned memory that the device writes to.
#pragma once

#include <vector>

#include <cuda_runtime_api.h>

#include "exec/cuda/calls.h"

namespace lockstep::exec::cuda {

// Bytes that are to be fetched to the cache: whole vectors of 16.
struct Fetch {
  uint64_t from = 0;
  uint32_t bytes = 0;
  uint32_t unused = 0;
};
__host__ __device__ inline Fetch whole_vectors(const void* from, int64_t bytes) {
  const auto place = reinterpret_cast<uint64_t>(from);
  const uint64_t begin = place & ~uint64_t{15};
  return {begin, static_cast<uint32_t>((place + static_cast<uint64_t>(bytes) - begin) & ~15ull), 0};
}

inline constexpr int kProductWarps = 24;  // of a block
inline constexpr int kPlanes = 4;         // of a weight
inline constexpr int kMostFetches = 2 * kPlanes;  // of a pair
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
    // How a block's warps share its rows: in tiles of 2^rows_log rows, cut into steps, of which a
    // warp takes so many; a row then has at most so many parts to be added up.
    int rows_log = 0, steps = 0, warp_steps = 0, most_parts = 0;
    int first_sum = 0, first_count = 0;  // where a block's sums, and counts of them, start
    int ahead_rows = 0;                  // of a block, fetched by the launch before
    int early_rows = 0;                  // of a block, fetched at once: those after them
  };

  const float* x = nullptr;
  int64_t columns = 0;
  // The norm: null where x is taken as it is.
  const float* norm_weight = nullptr;
  const float* norm_bias = nullptr;
  float* normed = nullptr;
  float epsilon = 0;
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

  // By plan_products(): what a block holds in shared memory.
  int blocks = 0;
  bool takes_codes = false, takes_floats = false;
  int floats_at = 0, sums_at = 0, counts_at = 0, shared_bytes = 0;

  // What each block fetches for the next products; may be null. [blocks][kMostFetches]
  const Fetch* ahead = nullptr;
};

// Fills in how the work is shared on a GPU of that many multiprocessors; false where rows are too
// long for this kernel.
bool plan_products(TokenProducts& call, int multiprocessors);
// What the blocks of a call should fetch for the next products, whose `ahead_rows` are filled in:
// nothing where the memory has enough to do.
std::vector<Fetch> plan_ahead(const TokenProducts& call, TokenProducts& next);
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
// How many multiprocessors its blocks fill. Where the launch before leaves them free, they are there
// and ready when it ends.
int multiprocessors_for(const AttentionCall& call);
void run_token_attention(const TokenAttention& call, cudaStream_t stream);

}  // namespace lockstep::exec::cuda
