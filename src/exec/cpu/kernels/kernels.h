// The inner loops of the CPU executor, compiled once for each kind of machine (targets.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::exec::cpu {

// Columns of a tile: tokens that are computed together.
inline constexpr int64_t kTile = 12;

// Inputs of a product, a column a token, in tiles of up to kTile columns one after another. In each
// array a tile of `w` columns from column `c` on starts at c times the length of one column and has
// w neighbouring columns side by side. Behind the codes, their scales and sums lie kColumnsBehind
// more numbers that may be read.
inline constexpr int64_t kColumnsBehind = 8;
struct Columns {
  int64_t count = 0;        // of columns
  int64_t length = 0;       // numbers in a column
  float* values = nullptr;  // [length][w], for weights in floating point
  // For quantized weights: 16-bit codes, so that value = code * scale, a scale for 256 numbers.
  int32_t* pairs = nullptr;  // [length / 2][w] pairs of codes
  float* scales = nullptr;   // [blocks of 256][w]
  float* sums16 = nullptr;   // [length / 16][w] sums of codes
  float* sums32 = nullptr;   // [length / 32][w]
};

// out[column, row] = weight · x + bias for some panels of 16 rows.
struct Product {
  const std::byte* panels = nullptr;
  int64_t panel_bytes = 0;
  int64_t rows = 0;  // of the weight; the last panel may have fewer than 16
  const Columns* x = nullptr;
  float* out = nullptr;
  int64_t out_stride = 0;
  const float* bias = nullptr;   // may be null
  std::byte* scratch = nullptr;  // product_scratch_bytes()
};
using ProductKernel = void (*)(const Product& product, int64_t first_panel, int64_t end_panel);

inline constexpr int64_t kPanelGroup = 4;  // panels that share a pass over the columns
int64_t product_scratch_bytes(int64_t columns);

// Attention of some columns (query heads of tokens that share keys and values).
struct AttentionCall {
  int64_t head_size = 0, value_size = 0;
  float scale = 1, soft_cap = 0;
  int64_t window = 0;
  bool half_cache = true;
  const void* keys = nullptr;    // [positions / 16][head_size][16], halves or floats
  const void* values = nullptr;  // [positions][value_size rounded up to 16]
  // Column c is head c % heads of the row (token) c / heads; its query at q + row * q_stride + head
  // * head_size, its result likewise.
  int64_t heads = 0;
  const float* sinks = nullptr;  // [heads]; null: none
  const float* q = nullptr;
  int64_t q_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  int64_t first_position = 0;  // of row 0
  // Where somebody watches: scores and probabilities [heads, rows, positions] of these heads.
  float* scores = nullptr;
  float* probs = nullptr;
  int64_t watched_rows = 0, watched_positions = 0;
  float* scratch = nullptr;  // attention_scratch_floats()
};
inline constexpr int64_t kAttentionSpan = 128;  // positions that are handled together
int64_t attention_scratch_floats(int64_t head_size, int64_t value_size);

struct Kernels {
  ProductKernel product_f32, product_f16, product_bf16;
  ProductKernel product_q4_0, product_q4_1, product_q5_0, product_q5_1, product_q8_0;
  ProductKernel product_q2_k, product_q3_k, product_q4_k, product_q5_k, product_q6_k;
  ProductKernel product_iq4_nl, product_iq4_xs, product_mxfp4;

  // Rounds `width` columns of x (stride between them) to a tile.
  void (*quantize_tile)(const float* x, int64_t stride, int64_t width, int64_t length,
                        int32_t* pairs, float* scales, float* sums16, float* sums32);
  void (*transpose_tile)(const float* x, int64_t stride, int64_t width, int64_t length, float* out);

  void (*attention)(const AttentionCall& call, int64_t first_column, int64_t end_column);

  void (*rms_norm)(const float* x, const float* weight, float epsilon, int64_t count, float* out);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float epsilon,
                     int64_t count, float* out);
  // `other` may be null.
  void (*silu)(const float* x, const float* other, int64_t count, float* out);
  void (*gelu_tanh)(const float* x, const float* other, int64_t count, float* out);
  void (*clamped_swish)(const float* x, const float* other, int64_t count, float* out);
  void (*add)(const float* x, const float* y, int64_t count, float* out);
  void (*scale)(const float* x, float factor, int64_t count, float* out);
  void (*soft_cap)(const float* x, float cap, int64_t count, float* out);
  void (*to_half)(const float* x, int64_t count, uint16_t* out);
};

}  // namespace lockstep::exec::cpu
