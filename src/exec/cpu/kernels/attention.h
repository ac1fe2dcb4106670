// Attention with a running softmax over blocks of 128 positions, counted from the start of the
// sequence: a token's result has the same bits however the prompt was cut into steps.
// To be included after product_float.h and functions.h.
#pragma once

#include "exec/cpu/kernels/functions.h"
#include "exec/cpu/kernels/product_float.h"

namespace lockstep::exec::cpu {
namespace {

constexpr int64_t kSpan = kAttentionSpan;    // positions of a block
constexpr int64_t kQueries = 4 * kTile;      // columns that share a pass over keys and values
constexpr float kNever = -__builtin_inff();  // score of a position out of sight

// The state of one pass. Pointers lead into the call's scratch.
struct Pass {
  const AttentionCall& call;
  int64_t first, count;  // columns
  int64_t value_width;   // value_size rounded up to 16
  float* keys;           // [kSpan / 16][head_size][16]
  float* values;         // [value_width / 16][kSpan][16]
  float* queries;        // a tile at c * head_size: [head_size][w]
  float* scores;         // [kTile][kSpan], then the exponentials
  float* part;           // [kTile][value_width]
  float* mix;            // [kQueries][value_width]
  float* largest;        // [kQueries]
  float* sum;            // [kQueries]

  Pass(const AttentionCall& c, int64_t first_column, int64_t columns)
      : call(c),
        first(first_column),
        count(columns),
        value_width((c.value_size + 15) / 16 * 16),
        keys(c.scratch),
        values(keys + kSpan * c.head_size),
        queries(values + kSpan * value_width),
        scores(queries + kQueries * c.head_size),
        part(scores + kTile * kSpan),
        mix(part + kTile * value_width),
        largest(mix + kQueries * value_width),
        sum(largest + kQueries) {}

  int64_t row(int64_t c) const { return (first + c) / call.heads; }
  int64_t head(int64_t c) const { return (first + c) % call.heads; }
  int64_t position(int64_t c) const { return call.first_position + row(c); }
  int64_t first_seen(int64_t c) const {
    const int64_t start = position(c) - call.window + 1;
    return call.window > 0 && start > 0 ? start : 0;
  }
  float* watched(float* base, int64_t c) const {
    return base + (head(c) * call.watched_rows + row(c)) * call.watched_positions;
  }
};

// Keys and values of positions base to base + length as floats. False: some value is not finite.
template <class Read>
bool read_cache(const Pass& pass, int64_t base, int64_t length) {
  const int64_t size = pass.call.head_size;
  const int64_t key_lanes = (length + 15) / 16 * size;
  for (int64_t i = 0; i < key_lanes; ++i)
    f_store(pass.keys + i * 16, Read::at(pass.call.keys, (base * size) + i * 16));
  F poison = f_zero();
  for (int64_t panel = 0; panel < pass.value_width / 16; ++panel)
    for (int64_t p = 0; p < length; ++p) {
      const F v = Read::at(pass.call.values, (base + p) * pass.value_width + panel * 16);
      poison = f_fma(v, f_zero(), poison);
      f_store(pass.values + (panel * kSpan + p) * 16, v);
    }
  return f_sum(poison) == 0;
}

// Scores of one column and `length` positions to exponentials; brings its running maximum and sum
// up to date. Returns what the earlier blocks' mix must be multiplied by.
inline float soften(const Pass& pass, int64_t c, int64_t base, int64_t length, float* scores) {
  const AttentionCall& call = pass.call;
  const int64_t lanes = (length + 15) / 16 * 16;
  const F factor = f_set(call.scale);
  for (int64_t i = 0; i < lanes; i += 16) f_store(scores + i, f_mul(f_load(scores + i), factor));
  if (call.soft_cap > 0) soft_cap(scores, call.soft_cap, lanes, scores);
  const int64_t begin = pass.first_seen(c) - base, end = pass.position(c) + 1 - base;
  for (int64_t i = 0; i < lanes && i < begin; ++i) scores[i] = kNever;
  for (int64_t i = end < 0 ? 0 : end; i < lanes; ++i) scores[i] = kNever;
  if (call.scores != nullptr)
    for (int64_t i = begin < 0 ? 0 : begin; i < lanes && i < end; ++i)
      pass.watched(call.scores, c)[base + i] = scores[i];
  F most = f_set(kNever);
  for (int64_t i = 0; i < lanes; i += 16) most = f_max(f_load(scores + i), most);
  const float block = f_largest(most);
  const float before = pass.largest[c];
  const float now = block > before ? block : before;
  if (begin >= lanes || end <= 0) {  // nothing in sight
    for (int64_t i = 0; i < lanes; i += 16) f_store(scores + i, f_zero());
    return 1;
  }
  F sum = f_zero();
  for (int64_t i = 0; i < lanes; i += 16) {
    const F e = f_exp(f_sub(f_load(scores + i), f_set(now)));
    f_store(scores + i, e);
    sum = f_add(sum, e);
  }
  alignas(64) float old[16];
  f_store(old, f_exp(f_set(before - now)));
  pass.largest[c] = now;
  pass.sum[c] = pass.sum[c] * old[0] + f_sum(sum);
  return old[0];
}

// Adds the mix of one block to that of the earlier ones, for a tile of w columns from c on.
inline void mix_block(const Pass& pass, int64_t c, int64_t w, int64_t base, int64_t length,
                      bool finite, const float* fades) {
  const int64_t panels = pass.value_width / 16;
  if (finite) {
    multiply_tile(pass.values, kSpan * 16, panels, length, pass.scores, OneByOne<kSpan>{}, w,
                  pass.part, pass.value_width);
  } else {  // zero times infinity is not zero: each column meets only what it sees
    for (int64_t i = 0; i < w; ++i) {
      const int64_t seen = pass.first_seen(c + i) - base;
      const int64_t begin = seen < 0 ? 0 : seen > length ? length : seen;
      const int64_t last = pass.position(c + i) + 1 - base;
      const int64_t end = last < begin ? begin : last > length ? length : last;
      multiply_tile(pass.values + begin * 16, kSpan * 16, panels, end - begin,
                    pass.scores + i * kSpan + begin, OneByOne<kSpan>{}, 1,
                    pass.part + i * pass.value_width, pass.value_width);
    }
  }
  for (int64_t i = 0; i < w; ++i) {
    float* mix = pass.mix + (c + i) * pass.value_width;
    for (int64_t d = 0; d < pass.value_width; d += 16)
      f_store(mix + d, f_fma(f_load(mix + d), f_set(fades[i]),
                             f_load(pass.part + i * pass.value_width + d)));
  }
}

inline void finish(const Pass& pass, int64_t c) {
  const AttentionCall& call = pass.call;
  float* out = call.out + pass.row(c) * call.out_stride + pass.head(c) * call.value_size;
  const float* mix = pass.mix + c * pass.value_width;
  const F sum = f_set(pass.sum[c]);
  each_lane(call.value_size, out, [&](const auto& load) { return f_div(load(mix), sum); });
  if (call.probs == nullptr) return;
  const int64_t begin = pass.first_seen(c), count = pass.position(c) + 1 - begin;
  const float* scores = pass.watched(call.scores, c) + begin;
  each_lane(count, pass.watched(call.probs, c) + begin, [&](const auto& load) {
    return f_div(f_exp(f_sub(load(scores), f_set(pass.largest[c]))), sum);
  });
}

template <class Read>
void attend(const AttentionCall& call, int64_t first, int64_t count) {
  const Pass pass(call, first, count);
  for (int64_t c = 0; c < count; ++c) {
    const int64_t tile = c / kTile * kTile;
    const int64_t w = count - tile < kTile ? count - tile : kTile;
    const float* q = call.q + pass.row(c) * call.q_stride + pass.head(c) * call.head_size;
    float* out = pass.queries + tile * call.head_size + (c - tile);
    for (int64_t d = 0; d < call.head_size; ++d) out[d * w] = q[d];
    // A sink is a score that was seen before all others, with nothing to mix.
    pass.largest[c] = call.sinks != nullptr ? call.sinks[pass.head(c)] : kNever;
    pass.sum[c] = call.sinks != nullptr ? 1 : 0;
  }
  for (int64_t i = 0; i < count * pass.value_width; i += 16) f_store(pass.mix + i, f_zero());

  const int64_t end = pass.position(count - 1) + 1;
  for (int64_t base = pass.first_seen(0) / kSpan * kSpan; base < end; base += kSpan) {
    const int64_t length = end - base < kSpan ? end - base : kSpan;
    const bool finite = read_cache<Read>(pass, base, length);
    for (int64_t tile = 0; tile < count; tile += kTile) {
      const int64_t w = count - tile < kTile ? count - tile : kTile;
      multiply_tile(pass.keys, call.head_size * 16, (length + 15) / 16, call.head_size,
                    pass.queries + tile * call.head_size, SideBySide{w}, w, pass.scores, kSpan);
      float fades[kTile];
      for (int64_t i = 0; i < w; ++i)
        fades[i] = soften(pass, tile + i, base, length, pass.scores + i * kSpan);
      mix_block(pass, tile, w, base, length, finite, fades);
    }
  }
  for (int64_t c = 0; c < count; ++c) finish(pass, c);
}

void attention(const AttentionCall& call, int64_t first, int64_t end) {
  for (int64_t c = first; c < end; c += kQueries) {
    const int64_t count = end - c < kQueries ? end - c : kQueries;
    if (call.half_cache)
      attend<ReadF16>(call, c, count);
    else
      attend<ReadF32>(call, c, count);
  }
}

}  // namespace
}  // namespace lockstep::exec::cpu
