// Products in f32: of floating-point weights, and the two of attention. Sums run over blocks of 256
// columns, one fused multiply-add after another, and the blocks are added up: the same bits on all
// paths, and rounding errors that grow with the block, not with the row.
// To be included after product_int.h.
#pragma once

#include "exec/cpu/kernels/product_int.h"

namespace lockstep::exec::cpu {
namespace {

// How the columns that a product meets lie.
struct SideBySide {  // number k of column c at k * w + c
  int64_t w;
  LS_LANE int64_t at(SideBySide self, int64_t k, int64_t c) { return k * self.w + c; }
};
template <int64_t Length>
struct OneByOne {  // at c * Length + k
  LS_LANE int64_t at(OneByOne, int64_t k, int64_t c) { return c * Length + k; }
};

// out[c * out_stride + r * 16 + lane] = sum over k of weights[r][k][lane] * x[k of column c]
// for N columns; `panel_stride` floats lie between the panels.
template <int Panels, int N, class Layout>
void multiply_floats(const float* weights, int64_t panel_stride, int64_t length, const float* x,
                     Layout layout, float* out, int64_t out_stride) {
  F sum[Panels][N];
  unrolled<0, Panels * N>([&](auto i) { sum[i / N][i % N] = f_zero(); });
  for (int64_t k = 0; k < length; ++k) {
    F weight[Panels];
    unrolled<0, Panels>(
        [&](auto r) { weight[r] = f_load(weights + r * panel_stride + k * kPanelRows); });
    unrolled<0, N>([&](auto c) {
      const F a = f_set(x[Layout::at(layout, k, c)]);
      unrolled<0, Panels>([&](auto r) { sum[r][c] = f_fma(weight[r], a, sum[r][c]); });
    });
  }
  unrolled<0, N>([&](auto c) {
    unrolled<0, Panels>([&](auto r) { f_store(out + c * out_stride + r * kPanelRows, sum[r][c]); });
  });
}

// The same for any number of columns: as many at once as there are, of a few numbers that are worth
// code of their own.
template <int Panels, int N, class Layout>
void multiply_columns(const float* weights, int64_t panel_stride, int64_t length, const float* x,
                      Layout layout, int64_t count, float* out, int64_t out_stride) {
  int64_t c = 0;
  for (; c + N <= count; c += N)
    multiply_floats<Panels, N>(weights, panel_stride, length, x + Layout::at(layout, 0, c), layout,
                               out + c * out_stride, out_stride);
  constexpr int kFewer = N > 8 ? 8 : N > 4 ? 4 : N > 2 ? 2 : 1;
  if constexpr (N > 1)
    if (c < count)
      multiply_columns<Panels, kFewer>(weights, panel_stride, length, x + Layout::at(layout, 0, c),
                                       layout, count - c, out + c * out_stride, out_stride);
}

// The same for any number of panels.
template <class Layout>
void multiply_tile(const float* weights, int64_t panel_stride, int64_t panels, int64_t length,
                   const float* x, Layout layout, int64_t w, float* out, int64_t out_stride) {
  int64_t p = 0;
  for (; p + kFloatPanels <= panels; p += kFloatPanels)
    multiply_columns<kFloatPanels, kFloatColumns>(weights + p * panel_stride, panel_stride, length,
                                                  x, layout, w, out + p * kPanelRows, out_stride);
  if constexpr (kFloatPanels > 1)
    for (; p < panels; ++p)
      multiply_columns<1, kFloatColumns>(weights + p * panel_stride, panel_stride, length, x,
                                         layout, w, out + p * kPanelRows, out_stride);
}

struct ReadF32 {
  static constexpr int64_t kBytes = 4;
  LS_LANE F at(const void* p, int64_t index) {
    return f_load(static_cast<const float*>(p) + index);
  }
};
struct ReadF16 {
  static constexpr int64_t kBytes = 2;
  LS_LANE F at(const void* p, int64_t index) {
    return f_from_half(static_cast<const uint16_t*>(p) + index);
  }
};
struct ReadBF16 {
  static constexpr int64_t kBytes = 2;
  LS_LANE F at(const void* p, int64_t index) {
    return f_from_bfloat(static_cast<const uint16_t*>(p) + index);
  }
};

template <class Read, int Streams>
void generate_floats(const Product& product, int64_t panel) {
  const Columns& x = *product.x;
  const std::byte* base = product.panels + panel * product.panel_bytes;
  F total[Streams];
  unrolled<0, Streams>([&](auto s) { total[s] = f_zero(); });
  for (int64_t first = 0; first < x.length; first += kBlock) {
    const int64_t end = x.length - first < kBlock ? x.length : first + kBlock;
    F sum[Streams];
    unrolled<0, Streams>([&](auto s) { sum[s] = f_zero(); });
    for (int64_t k = first; k < end; ++k) {
      const F a = f_set(x.values[k]);
      unrolled<0, Streams>([&](auto s) {
        sum[s] = f_fma(Read::at(base + s * product.panel_bytes, k * kPanelRows), a, sum[s]);
      });
    }
    unrolled<0, Streams>([&](auto s) { total[s] = f_add(total[s], sum[s]); });
  }
  unrolled<0, Streams>([&](auto s) { store_rows(product, panel + s, 0, total[s]); });
}

// Weights of a block as floats: [panels][length][16], `stride` floats from panel to panel. Those
// that are floats already are used where they lie.
struct FloatPanels {
  const float* data;
  int64_t stride;
};

template <class Read>
LS_LANE FloatPanels float_panels(const Product& product, int64_t first_panel, int64_t panels,
                                 int64_t first, int64_t length, float* buffer) {
  const std::byte* base = product.panels + first_panel * product.panel_bytes;
  if constexpr (std::is_same_v<Read, ReadF32>)
    return {reinterpret_cast<const float*>(base) + first * kPanelRows,
            product.panel_bytes / Read::kBytes};
  for (int64_t p = 0; p < panels; ++p)
    for (int64_t k = 0; k < length; ++k)
      f_store(buffer + (p * kBlock + k) * kPanelRows,
              Read::at(base + p * product.panel_bytes, (first + k) * kPanelRows));
  return {buffer, kBlock * kPanelRows};
}

template <class Read>
void prompt_floats(const Product& product, int64_t first_panel, int64_t panels) {
  const Columns& x = *product.x;
  constexpr int64_t kStride = kPanelGroup * kPanelRows;
  auto* buffer = reinterpret_cast<float*>(product.scratch);  // [panels][256][16]
  float* parts = buffer + kStride * kBlock;                  // [kTile][kStride]
  float* totals = parts + kStride * kTile;                   // [columns][kStride]
  for (int64_t i = 0; i < x.count * kStride; i += 16) f_store(totals + i, f_zero());
  for (int64_t first = 0; first < x.length; first += kBlock) {
    const int64_t length = x.length - first < kBlock ? x.length - first : kBlock;
    const FloatPanels weights =
        float_panels<Read>(product, first_panel, panels, first, length, buffer);
    for (int64_t tile = 0; tile < x.count; tile += kTile) {
      const int64_t w = x.count - tile < kTile ? x.count - tile : kTile;
      if (first + length == x.length) ask_for_rows(product, first_panel, panels, tile, w);
      multiply_tile(weights.data, weights.stride, panels, length,
                    x.values + tile * x.length + first * w, SideBySide{w}, w, parts, kStride);
      for (int64_t c = 0; c < w; ++c)
        for (int64_t i = 0; i < panels * kPanelRows; i += 16) {
          float* total = totals + (tile + c) * kStride + i;
          f_store(total, f_add(f_load(total), f_load(parts + c * kStride + i)));
        }
    }
  }
  for (int64_t column = 0; column < x.count; ++column)
    for (int64_t p = 0; p < panels; ++p)
      store_rows(product, first_panel + p, column,
                 f_load(totals + column * kStride + p * kPanelRows));
}

template <class Read>
void product_float(const Product& product, int64_t first, int64_t end) {
  if (product.x->count == 1) {
    constexpr int kAtOnce = 4;  // chains of additions that hide each other's latency
    int64_t panel = first;
    for (; panel + kAtOnce <= end; panel += kAtOnce) generate_floats<Read, kAtOnce>(product, panel);
    for (; panel < end; ++panel) generate_floats<Read, 1>(product, panel);
    return;
  }
  for (int64_t panel = first; panel < end; panel += kPanelGroup)
    prompt_floats<Read>(product, panel, end - panel < kPanelGroup ? end - panel : kPanelGroup);
}

void transpose_tile(const float* x, int64_t stride, int64_t width, int64_t length, float* out) {
  for (int64_t k = 0; k < length; ++k)
    for (int64_t c = 0; c < width; ++c) out[k * width + c] = x[c * stride + k];
}

}  // namespace
}  // namespace lockstep::exec::cpu
