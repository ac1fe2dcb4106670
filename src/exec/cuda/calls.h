// What kernels are called with: plain data that the host fills in. All pointers are the device's.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "quant/format.h"

namespace lockstep::exec::cuda {

// A weight on the device. Rows of floating point are padded with zeros to a multiple of 16 bytes.
// Quantized rows are cut into units of 32 columns, whose parts lie in planes (planes.h).
struct WeightView {
  quant::Format format{};
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;           // of floating point: numbers from row to row
  const uint8_t* codes = nullptr;   // floating point: the rows
  const uint8_t* extra = nullptr;   // bits of the codes that `codes` has no room for
  const uint8_t* scales = nullptr;  // of each unit
  const uint8_t* blocks = nullptr;  // of each block of 256
  int64_t row_bytes[4] = {};        // in these four planes
};

// A row as integers of 16 bits a unit of 32: scale * (256 * high + low), both signed bytes.
struct Codes {
  int8_t* high = nullptr;
  int8_t* low = nullptr;
  float* scales = nullptr;  // [units]
  int32_t* sums = nullptr;  // [units][2] of the integers, of 16 columns each
};

// What changes from step to step, so that a captured graph need not.
struct StepState {
  int64_t first_position = 0;
};

// Positions that a block of attention takes in generation.
inline constexpr int64_t kAttentionSpan = 128;

// Keys or values as halves, or in single precision as two halves each: number = (high + low) *
// 2^-shift.
struct CachePlanes {
  uint16_t* high = nullptr;  // [kv_heads][positions][size]
  uint16_t* low = nullptr;   // null: halves alone
  int8_t* shifts = nullptr;  // [kv_heads][positions]
};
struct Cache {
  CachePlanes keys, values;
  int64_t positions = 0;  // room for
  __host__ __device__ bool split() const { return keys.low != nullptr; }
};

// Rows of a prompt as halves, for the tensor cores: [rows][parts][columns], times a power of two
// that makes the largest number fit.
//   1 part   high
//   2 parts  low, high: two halves together keep 22 bits
//   3 parts  low, high, high
struct RowHalves {
  void* to = nullptr;
  int parts = 0;
  uint32_t* largest = nullptr;  // bits of the largest magnitude; all zeros before it is looked for
};

// The same of a weight, so that a product over all parts of both is what single precision would
// give: 1 part is high, 2 are high, high (a half has all bits already), 3 are high, low, high.
struct WeightHalves {
  void* to = nullptr;
  int parts = 0;
  uint32_t* largest = nullptr;
};

// One op on one row, by a block of threads.
struct RowTask {
  enum class Kind {
    kRmsNorm,
    kLayerNorm,
    kSlice,
    kHeadParts,  // of a, then of b: heads of head_size, of which value_size from column `group` on
    kRope,
    kSilu,
    kGeluTanh,
    kGeluErf,
    kClampedSwish,
    kAdd,
    kScale,
    kSoftCap,
    kPrepare,  // a becomes `codes` and, padded with zeros, `out`, for one token; or `halves`
    kAppend,   // a and b go to the cache as keys and values
  };
  Kind kind{};
  int64_t first_row = 0;
  const float* a = nullptr;  // [tokens, a_width]
  const float* b = nullptr;  // the second input, where there is one
  float* out = nullptr;
  int64_t a_width = 0, b_width = 0, width = 0;  // of a, b and out
  float factor = 0;                             // epsilon, or the factor of a Scale
  int64_t group = 0;                            // of a norm; the first column of a Slice
  const float* weight = nullptr;
  bool own_weights = false;  // each group of a norm has its own
  const float* bias = nullptr;
  const float* cosines = nullptr;  // [tokens, pairs]
  const float* sines = nullptr;
  int64_t pairs = 0, head_size = 0, value_size = 0;
  bool adjacent = false;
  Codes codes;
  RowHalves halves;  // of a from `first_row` on, in the usual range; `largest` is raised to a's
  Cache cache;
};

inline constexpr int kMostTasks = 8;
struct RowsCall {
  RowTask tasks[kMostTasks];
  int count = 0;
  int64_t tokens = 0;
  int parts = 1;  // blocks that share a token: each takes its part of the columns of every task
  const StepState* state = nullptr;
};

// A logit and its token as one number: the larger the logit, the larger it is; of equal ones the
// first token's. Zero: no logit at all, or NaN.
struct BestLogit {
  uint64_t key = 0;
  __host__ __device__ int32_t token() const {
    return key == 0 ? 0 : static_cast<int32_t>(~static_cast<uint32_t>(key));
  }
};

// out[t] = table[token t], or table[position of t].
struct EmbedCall {
  WeightView table;
  const int32_t* token_ids = nullptr;  // null: by position
  // Where an id is negative: the token of the largest of these. [best_count]
  const BestLogit* best = nullptr;
  int best_count = 0;
  const StepState* state = nullptr;
  float* out = nullptr;
  int64_t tokens = 0, first_row = 0;
};

// Products of one row with up to kMostProducts weights of one format.
inline constexpr int kMostProducts = 4;
struct MatvecCall {
  struct Product {
    WeightView weight;
    const float* bias = nullptr;  // may be null
    float* out = nullptr;
  };
  Product products[kMostProducts];
  int count = 0;
  const float* x = nullptr;  // padded with zeros
  Codes codes;
};

// out[t] = weight · x[t] + bias, for many rows.
struct MatmulCall {
  WeightView weight;
  const float* bias = nullptr;  // may be null
  const float* x = nullptr;     // [tokens, columns]
  float* out = nullptr;         // [tokens, rows]
  int64_t tokens = 0;
};

// Routing of a mixture of experts (op/op.h). Rows from `first_row` of `tokens`.
struct RouteCall {
  const float* router = nullptr;  // [tokens, experts]
  float* choice = nullptr;        // [tokens, used]; of Weigh an input
  float* weights = nullptr;       // [tokens, used]; null: it is a Choose
  const float* bias = nullptr;    // [experts]; may be null
  int64_t experts = 0, used = 0, groups = 1, groups_used = 1, group_scores = 2;
  bool sigmoid = false, normalize = false;
  float scale = 1;
  int64_t tokens = 0, first_row = 0;
};

// Products with chosen experts: out[t, slot] = weight[choice[t, slot]] · x[t, slot] + bias.
struct ExpertsCall {
  WeightView weight;            // of all experts
  int64_t rows = 0;             // of one
  const float* bias = nullptr;  // [experts, rows]; may be null
  const float* x = nullptr;     // [tokens, x_stride]
  int64_t x_stride = 0, slot_stride = 0;
  const float* choice = nullptr;  // [tokens, used]
  int64_t used = 0;
  float* out = nullptr;  // [tokens, used * rows]
  int64_t tokens = 0, first_row = 0;
};

// out[t] = sum over slots of weights[t, slot] * x[t, slot], or x[t] / (1 + exp(-weights[t])) where
// that is a gate.
struct MixCall {
  const float* weights = nullptr;  // [tokens, used]
  const float* x = nullptr;        // [tokens, used * width]
  float* out = nullptr;
  int64_t used = 0, width = 0;
  bool gate = false;
  int64_t tokens = 0, first_row = 0;
};

// Rows that chose experts as halves, in two planes: number = (high + low) / scale, or high / scale
// where there is no low.
struct Halves {
  void* high = nullptr;
  void* low = nullptr;          // may be null
  uint32_t* largest = nullptr;  // bits of the largest magnitude; all zeros before it is looked for
};
struct HalveRowsCall {
  const float* x = nullptr;
  int64_t count = 0;  // a multiple of four
  Halves out;
  uint32_t* next_largest = nullptr;  // becomes zero: the largest of the next rows
  int weights = 0;
  const uint32_t* largest_weight[kMostProducts] = {};
  float* factors = nullptr;  // [weights] that the products must be multiplied by
};

// Rows as halves side by side, for products with up to kMostProducts weights. A kPrepare has made
// them, in the usual range; where that does not hold the largest number, they are made anew.
struct FitRowsCall {
  const float* x = nullptr;
  int64_t rows = 0, columns = 0;  // columns: a multiple of four
  RowHalves out;
  uint32_t* next_largest = nullptr;  // becomes zero: the largest of the next rows
  int weights = 0;
  const uint32_t* largest_weight[kMostProducts] = {};
  float* factors = nullptr;  // [weights] that the products must be multiplied by
};

// Rows by expert, for prompts: `rows` are one for each token and chosen expert, in that order.
inline constexpr int kExpertTile = 64;  // rows that a block takes at most
struct ExpertTile {
  int32_t expert, first, count;  // of ExpertGroups::order
};
struct ExpertGroups {
  int32_t* order = nullptr;       // [rows] by expert, then in their own order
  ExpertTile* tiles = nullptr;    // [most_tiles]
  int32_t* tile_count = nullptr;  // how many there are
  int64_t most_tiles = 0;
};
struct GroupCall {
  const float* choice = nullptr;  // [rows]
  int64_t experts = 0, rows = 0;
  ExpertGroups out;
};

// Products of the same rows with up to kMostProducts weights of one format and size.
struct ExpertProductsCall {
  struct Product {
    WeightView weight;                  // of all experts
    const uint32_t* largest = nullptr;  // bits of its largest magnitude
    const float* bias = nullptr;        // [experts, rows]; may be null
    float* out = nullptr;               // a row for each of the groups' rows
  };
  Product products[kMostProducts];
  int count = 0;
  int64_t rows = 0;  // of one expert
  ExpertGroups groups;
  Halves x;                        // [groups' rows / rows_that_share, columns]
  int rows_that_share = 1;         // one row of x
  const float* factors = nullptr;  // [count] that the products must be multiplied by
};

struct AttentionCall {
  const float* q = nullptr;  // [tokens, heads * head_size]
  float* out = nullptr;      // [tokens, heads * value_size]
  Cache cache;
  int64_t heads = 0, kv_heads = 0, head_size = 0, value_size = 0;
  float scale = 1, soft_cap = 0;
  int64_t window = 0;
  const float* sinks = nullptr;  // [heads]; null: none
  int64_t tokens = 0;
  int64_t first_row = 0, rows = 0;  // what is computed of them
  const StepState* state = nullptr;
  // More than one: each block takes `span` positions, and a second kernel puts their results
  // together. [token][head][split][value_size + 2]
  int64_t splits = 1, span = 0;
  float* parts = nullptr;
  // Where somebody watches: [heads][tokens][positions], else null. The kernels of attention keep
  // the scores that they go on with, run_probs() does the rest.
  float* scores = nullptr;
  float* probs = nullptr;
  int64_t positions = 0;  // of scores and probs
};

}  // namespace lockstep::exec::cuda
