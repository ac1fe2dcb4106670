// What the kernels of the executor in double precision take, and their starts. Rows lie one after
// another, without gaps. What each op computes is defined by exec/reference/ops.h.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "op/op.h"

namespace lockstep::exec::cuda {

// Floats [rows, stride] to doubles [rows, columns].
void run_widen(const float* in, int64_t stride, int64_t rows, int64_t columns, double* out,
               cudaStream_t stream);

struct NormCall64 {
  const double* x = nullptr;      // [groups, group]
  const float* weight = nullptr;  // [weights, group]: groups take them in turn
  const float* bias = nullptr;    // may be null
  double* out = nullptr;
  int64_t groups = 0;
  int64_t weights = 1;
  int64_t group = 0;
  double epsilon = 0;
  bool layer = false;
};
void run_norm(const NormCall64& call, cudaStream_t stream);

struct RopeCall64 {
  const double* x = nullptr;  // [rows, columns]
  // Cosines and sines of each row, by pair: [rows, pairs] each.
  const double* cosines = nullptr;
  const double* sines = nullptr;
  double* out = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t head_size = 0;
  int64_t pairs = 0;
  bool adjacent = false;
};
void run_rope(const RopeCall64& call, cudaStream_t stream);

struct AttentionCall64 {
  const double* q = nullptr;  // [rows, heads * head_size]
  const double* k = nullptr;  // [positions, kv_heads * head_size]
  const double* v = nullptr;
  double* scores = nullptr;  // [heads, rows, positions]
  double* probs = nullptr;   // the same, or `scores` itself
  double* out = nullptr;     // [rows, heads * value_size]
  int64_t rows = 0;
  int64_t first_position = 0;  // of the rows
  int64_t positions = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t value_size = 0;
  double scale = 1;
  double soft_cap = 0;
  int64_t window = 0;
  const float* sinks = nullptr;  // [heads]; null: none
};
void run_attention(const AttentionCall64& call, cudaStream_t stream);

// out = f(x), times g(y) where there is a `y`.
void run_activate(op::Activate::Kind kind, const double* x, const double* y, int64_t count,
                  double* out, cudaStream_t stream);
void run_add(const double* x, const double* y, int64_t count, double* out, cudaStream_t stream);
// out = cap * tanh(x / cap)
void run_soft_cap(const double* x, double cap, int64_t count, double* out, cudaStream_t stream);
void run_scale(const double* x, double factor, int64_t count, double* out, cudaStream_t stream);

}  // namespace lockstep::exec::cuda
