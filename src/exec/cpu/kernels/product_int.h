// Products of quantized weights with 16-bit activations. Whole numbers are
// summed exactly within a group of columns that share a scale; then, in this
// order for every output whatever the path,
//   block = sum over groups of fma(sum, scale, ·) and fma(min, sum of codes, ·)
//   total = sum over blocks of fma(block, scale of the activations, ·)
// so generation, prompts and all targets give the same bits.
// To be included after a lanes_*.h header.
#pragma once

#include "exec/cpu/kernels/product_few.h"

namespace lockstep::exec::cpu {
namespace {

// A block of a panel, unpacked: what many columns are multiplied by.
struct Unpacked {
  alignas(64) int32_t pairs[kBlock / 2][kPanelRows];
  alignas(64) float scales[kBlock / 16][kPanelRows];  // a group each
  alignas(64) float mins[kBlock / 16][kPanelRows];
};

template <CodeFormat P>
void unpack(const std::byte* block, int64_t columns, Unpacked& out) {
  const Table table = level_table<P>();
  const BlockScales<P> scales = BlockScales<P>::at(block);
  for (int64_t group = 0; group < columns / P.group; ++group) {
    F scale = f_zero(), min = f_zero();
    scales.get(group, scale, min);
    f_store(out.scales[group], scale);
    f_store(out.mins[group], min);
  }
  const std::byte* units = block + scale_bytes(P, columns);
  for (int64_t unit = 0; unit < columns / kUnit; ++unit)
    unrolled<0, kUnit / 2>([&](auto p) {
      i_store(out.pairs[unit * (kUnit / 2) + p],
              code_pair<P, decltype(p)::value>(units + unit * unit_bytes(P), table));
    });
}

// Adds a block's part to totals [columns][panels * 16], for N columns from `x`,
// `scales`, `sums` on, in a tile of `w` columns. Sums of groups stay in
// registers, those of the block in memory where registers are few.
template <int Group, bool HasMin, int Panels, int N>
void multiply_block(const Unpacked* weights, int64_t columns, const int32_t* x, const float* scales,
                    const float* sums, int64_t w, float* totals, int64_t totals_stride) {
  constexpr int kPairs = Group / 2;
  F block[Panels][N];
  unrolled<0, Panels * N>([&](auto i) { block[i / N][i % N] = f_zero(); });
  for (int64_t group = 0; group < columns / Group; ++group) {
    I sum[Panels][N];
    unrolled<0, Panels * N>([&](auto i) { sum[i / N][i % N] = i_zero(); });
    const int32_t* pairs = x + group * kPairs * w;
    for (int pair = 0; pair < kPairs; pair += 4)
      unrolled<0, 4>([&](auto u) {
        I weight[Panels];
        unrolled<0, Panels>(
            [&](auto r) { weight[r] = i_load(weights[r].pairs[group * kPairs + pair + u]); });
        unrolled<0, N>([&](auto c) {
          const I a = i_set(pairs[(pair + u) * w + c]);
          unrolled<0, Panels>([&](auto r) { sum[r][c] = i_dot(sum[r][c], weight[r], a); });
        });
      });
    unrolled<0, Panels>([&](auto r) {
      const F scale = f_load(weights[r].scales[group]);
      unrolled<0, N>([&](auto c) { block[r][c] = f_fma(f_from_i(sum[r][c]), scale, block[r][c]); });
      if constexpr (HasMin) {
        const F min = f_load(weights[r].mins[group]);
        unrolled<0, N>(
            [&](auto c) { block[r][c] = f_fma(min, f_set(sums[group * w + c]), block[r][c]); });
      }
    });
  }
  unrolled<0, N>([&](auto c) {
    const F scale = f_set(scales[c]);
    unrolled<0, Panels>([&](auto r) {
      float* total = totals + c * totals_stride + r * kPanelRows;
      f_store(total, f_fma(block[r][c], scale, f_load(total)));
    });
  });
}

// The same for `count` columns, at most N.
template <int Group, bool HasMin, int Panels, int N, class... Args>
void multiply_some(int64_t count, Args... args) {
  if constexpr (N > 1)
    if (count < N) return multiply_some<Group, HasMin, Panels, N - 1>(count, args...);
  multiply_block<Group, HasMin, Panels, N>(args...);
}

// The codes of a block of the tile that begins at column `tile`, if there is
// one.
LS_LANE void ask_for_columns(const Columns& x, int64_t tile, int64_t first, int64_t columns) {
  if (tile >= x.count) return;
  const int64_t w = x.count - tile < kTile ? x.count - tile : kTile;
  const int32_t* pairs = x.pairs + tile * (x.length / 2) + first / 2 * w;
  for (int64_t i = 0; i < columns / 2 * w; i += 16) __builtin_prefetch(pairs + i, 0, 2);
}

// Many columns meet `Panels` panels of a block, which are unpacked once and
// stay in the first cache. Meanwhile what comes next is asked for: weights
// (`next`), and for the first panels the columns, which the others then find in
// the second cache.
template <CodeFormat P, int Panels>
void multiply_panels(const Product& product, int64_t panel, const std::byte* block, int64_t first,
                     int64_t columns, const std::byte* next, bool first_panels, float* totals,
                     int64_t stride) {
  const Columns& x = *product.x;
  auto* weights = reinterpret_cast<Unpacked*>(product.scratch);
  for (int64_t p = 0; p < Panels; ++p)
    unpack<P>(block + p * product.panel_bytes, columns, weights[p]);
  const float* sums = P.group == 16 ? x.sums16 : x.sums32;
  const int64_t blocks = (x.length + kBlock - 1) / kBlock;
  const int64_t tiles = (x.count + kTile - 1) / kTile;
  for (int64_t i = 0; i < tiles; ++i) {
    ask_for(next, product.panel_bytes, Panels, block_bytes(P, columns), i, tiles);
    const int64_t tile = i * kTile;
    const int64_t w = x.count - tile < kTile ? x.count - tile : kTile;
    if (first_panels) ask_for_columns(x, tile + kTile, first, columns);
    if (first + columns == x.length) ask_for_rows(product, panel, Panels, tile, w);
    const int64_t parts = (w + kIntColumns - 1) / kIntColumns;
    const int32_t* pairs = x.pairs + tile * (x.length / 2) + first / 2 * w;
    const float* scales = x.scales + tile * blocks + first / kBlock * w;
    const float* tile_sums = sums + tile * (x.length / P.group) + first / P.group * w;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t c = w * part / parts, count = w * (part + 1) / parts - c;
      multiply_some<P.group, P.has_min(), Panels, kIntColumns>(
          count, weights, columns, pairs + c, scales + c, tile_sums + c, w,
          totals + (tile + c) * stride, stride);
    }
  }
}

// Many columns: a block after another, so that the columns' part of it stays in
// the second cache while all panels of a group meet it.
template <CodeFormat P>
void prompt(const Product& product, int64_t first_panel, int64_t panels) {
  const Columns& x = *product.x;
  auto* totals = reinterpret_cast<float*>(product.scratch + kIntPanels * sizeof(Unpacked));
  constexpr int64_t kStride = kPanelGroup * kPanelRows;  // totals [columns][kStride]
  for (int64_t i = 0; i < x.count * kStride; i += 16) f_store(totals + i, f_zero());
  const std::byte* base = product.panels + first_panel * product.panel_bytes;
  const std::byte* after = base + panels * product.panel_bytes;
  for (int64_t first = 0; first < x.length; first += kBlock) {
    const int64_t columns = x.length - first < kBlock ? x.length - first : kBlock;
    const int64_t bytes = block_bytes(P, columns);
    for (int64_t p = 0; p < panels;) {
      const bool full = p + kIntPanels <= panels;
      const int64_t end = p + (full ? kIntPanels : 1);
      const std::byte* block = base + p * product.panel_bytes;
      const std::byte* next = end < panels                ? base + end * product.panel_bytes
                              : first + kBlock < x.length ? base + bytes
                                                          : after;
      float* out = totals + p * kPanelRows;
      if (full)
        multiply_panels<P, kIntPanels>(product, first_panel + p, block, first, columns, next,
                                       p == 0, out, kStride);
      else if constexpr (kIntPanels > 1)
        multiply_panels<P, 1>(product, first_panel + p, block, first, columns, next, p == 0, out,
                              kStride);
      p = end;
    }
    base += bytes;
  }
  for (int64_t column = 0; column < x.count; ++column)
    for (int64_t p = 0; p < panels; ++p)
      store_rows(product, first_panel + p, column,
                 f_load(totals + column * kStride + p * kPanelRows));
}

template <CodeFormat P>
void product_int(const Product& product, int64_t first, int64_t end) {
  if (product.x->count == 1) {
    int64_t panel = first;
    for (; panel + kStreams <= end; panel += kStreams) generate<P>(product, panel, false);
    for (; panel < end; ++panel) generate<P>(product, panel, true);
    return;
  }
  if constexpr (kFewColumns >= 4) {
    if (product.x->count <= 2) return few_columns<P, 2, kStreams>(product, first, end);
    if (product.x->count <= 4) return few_columns<P, 4, 1>(product, first, end);
  }
  if constexpr (kFewColumns >= 8)
    if (product.x->count <= 8) return few_columns<P, 8, 1>(product, first, end);
  for (int64_t panel = first; panel < end; panel += kPanelGroup)
    prompt<P>(product, panel, end - panel < kPanelGroup ? end - panel : kPanelGroup);
}

}  // namespace
}  // namespace lockstep::exec::cpu
