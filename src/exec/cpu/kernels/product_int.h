// Products of quantized weights with 16-bit activations. Whole numbers are summed exactly within a
// group of columns that share a scale; then, in this order for every output whatever the path,
//   block = sum over groups of fma(sum, scale, ·) and fma(min, sum of codes, ·)
//   total = sum over blocks of fma(block, scale of the activations, ·)
// so generation, prompts and all targets give the same bits.
// To be included after a lanes_*.h header.
#pragma once

#include <type_traits>

#include "exec/cpu/kernels/codes.h"
#include "exec/cpu/kernels/kernels.h"

namespace lockstep::exec::cpu {
namespace {

template <int First, int End, class Body>
LS_LANE void unrolled(const Body& body) {
  if constexpr (First < End) {
    body(std::integral_constant<int, First>{});
    unrolled<First + 1, End>(body);
  }
}

LS_LANE void store_rows(const Product& product, int64_t panel, int64_t column, F total) {
  const int64_t row = panel * kPanelRows;
  const int64_t left = product.rows - row;
  float* out = product.out + column * product.out_stride + row;
  if (left >= kPanelRows) {
    if (product.bias != nullptr) total = f_add(total, f_load(product.bias + row));
    f_store(out, total);
  } else {
    if (product.bias != nullptr) total = f_add(total, f_load_some(product.bias + row, left));
    f_store_some(out, total, left);
  }
}

// How far ahead memory is asked for, in bytes: beyond what the hardware does by itself.
constexpr int64_t kAhead = 2048;

// One column: codes go from memory straight into the sums, from kStreams panels at once; where only
// one is left, all streams read it.
template <CodeFormat P>
void generate(const Product& product, int64_t panel, bool alone) {
  constexpr int Streams = kStreams;
  const int64_t stride = alone ? 0 : product.panel_bytes;
  const Columns& x = *product.x;
  const std::byte* base = product.panels + panel * product.panel_bytes;
  const Table table = level_table<P>();
  F total[Streams];
  unrolled<0, Streams>([&](auto s) { total[s] = f_zero(); });
  const float* sums = P.group == 16 ? x.sums16 : x.sums32;
  for (int64_t first = 0; first < x.length; first += kBlock) {
    const int64_t columns = x.length - first < kBlock ? x.length - first : kBlock;
    BlockScales<P> scales[Streams];
    F block[Streams];
    unrolled<0, Streams>([&](auto s) {
      scales[s] = BlockScales<P>::at(base + s * stride);
      block[s] = f_zero();
    });
    const std::byte* units = base + scale_bytes(P, columns);
    for (int64_t unit = 0; unit < columns / kUnit; ++unit) {
      const int32_t* pairs = x.pairs + (first + unit * kUnit) / 2;
      unrolled<0, Streams>([&](auto s) {
        const std::byte* ahead = units + s * stride + unit * unit_bytes(P) + kAhead;
        for (int64_t line = 0; line < unit_bytes(P); line += 64) __builtin_prefetch(ahead + line);
      });
      unrolled<0, kUnit / P.group>([&](auto g) {
        constexpr int kPairs = P.group / 2;
        constexpr int kFirst = decltype(g)::value * kPairs;
        I even[Streams], odd[Streams];
        unrolled<0, Streams>([&](auto s) { even[s] = odd[s] = i_zero(); });
        unrolled<kFirst, kFirst + kPairs>([&](auto p) {
          constexpr int kPair = decltype(p)::value;
          const I a = i_set(pairs[kPair]);
          unrolled<0, Streams>([&](auto s) {
            const std::byte* codes = units + s * stride + unit * unit_bytes(P);
            I& sum = kPair % 2 == 0 ? even[s] : odd[s];
            sum = i_dot(sum, code_pair<P, kPair>(codes, table), a);
          });
        });
        const int64_t group = unit * (kUnit / P.group) + g;
        unrolled<0, Streams>([&](auto s) {
          F scale = f_zero(), min = f_zero();
          scales[s].get(group, scale, min);
          block[s] = f_fma(f_from_i(i_add(even[s], odd[s])), scale, block[s]);
          if constexpr (P.has_min())
            block[s] = f_fma(min, f_set(sums[first / P.group + group]), block[s]);
        });
      });
    }
    const F a_scale = f_set(x.scales[first / kBlock]);
    unrolled<0, Streams>([&](auto s) { total[s] = f_fma(block[s], a_scale, total[s]); });
    base += block_bytes(P, columns);
  }
  store_rows(product, panel, 0, total[0]);
  if (alone) return;
  unrolled<1, Streams>([&](auto s) { store_rows(product, panel + s, 0, total[s]); });
}

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

// Adds a block's part to totals [columns][panels * 16], for N columns from `x`, `scales`, `sums`
// on, in a tile of `w` columns.
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
#pragma GCC unroll 4
    for (int pair = 0; pair < kPairs; ++pair) {
      I weight[Panels];
      unrolled<0, Panels>(
          [&](auto r) { weight[r] = i_load(weights[r].pairs[group * kPairs + pair]); });
      unrolled<0, N>([&](auto c) {
        const I a = i_set(pairs[pair * w + c]);
        unrolled<0, Panels>([&](auto r) { sum[r][c] = i_dot(sum[r][c], weight[r], a); });
      });
    }
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

// Many columns: each block of a group of panels is unpacked once and meets all of them.
template <CodeFormat P>
void prompt(const Product& product, int64_t first_panel, int64_t panels) {
  const Columns& x = *product.x;
  auto* weights = reinterpret_cast<Unpacked*>(product.scratch);
  auto* totals = reinterpret_cast<float*>(product.scratch + kPanelGroup * sizeof(Unpacked));
  constexpr int64_t kStride = kPanelGroup * kPanelRows;  // totals [columns][kStride]
  for (int64_t i = 0; i < x.count * kStride; i += 16) f_store(totals + i, f_zero());
  const float* sums = P.group == 16 ? x.sums16 : x.sums32;
  const std::byte* base = product.panels + first_panel * product.panel_bytes;
  const int64_t blocks = (x.length + kBlock - 1) / kBlock;
  for (int64_t first = 0; first < x.length; first += kBlock) {
    const int64_t columns = x.length - first < kBlock ? x.length - first : kBlock;
    for (int64_t p = 0; p < panels; ++p)
      unpack<P>(base + p * product.panel_bytes, columns, weights[p]);
    base += block_bytes(P, columns);
    for (int64_t tile = 0; tile < x.count; tile += kTile) {
      const int64_t w = x.count - tile < kTile ? x.count - tile : kTile;
      const int64_t parts = (w + kIntColumns - 1) / kIntColumns;
      const int32_t* pairs = x.pairs + tile * (x.length / 2) + first / 2 * w;
      const float* scales = x.scales + tile * blocks + first / kBlock * w;
      const float* tile_sums = sums + tile * (x.length / P.group) + first / P.group * w;
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t c = w * part / parts, count = w * (part + 1) / parts - c;
        float* out = totals + (tile + c) * kStride;
        int64_t p = 0;
        for (; p + kIntPanels <= panels; p += kIntPanels)
          multiply_some<P.group, P.has_min(), kIntPanels, kIntColumns>(
              count, weights + p, columns, pairs + c, scales + c, tile_sums + c, w,
              out + p * kPanelRows, kStride);
        if constexpr (kIntPanels > 1)
          for (; p < panels; ++p)
            multiply_some<P.group, P.has_min(), 1, kIntColumns>(
                count, weights + p, columns, pairs + c, scales + c, tile_sums + c, w,
                out + p * kPanelRows, kStride);
      }
    }
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
  for (int64_t panel = first; panel < end; panel += kPanelGroup)
    prompt<P>(product, panel, end - panel < kPanelGroup ? end - panel : kPanelGroup);
}

// Codes of one tile: `pairs` [length / 2][width], `scales` [blocks][width], sums [groups][width].
void quantize_tile(const float* x, int64_t stride, int64_t width, int64_t length, int32_t* pairs,
                   float* scales, float* sums16, float* sums32) {
  for (int64_t c = 0; c < width; ++c) {
    const float* column = x + c * stride;
    for (int64_t first = 0; first < length; first += kBlock) {
      const int64_t count = length - first < kBlock ? length - first : kBlock;
      // f_max drops a NaN in its first operand; adding zero times every number brings it back.
      F largest = f_zero(), poison = f_zero();
      for (int64_t i = 0; i < count; i += 16) {
        const F v = f_load(column + first + i);
        largest = f_max(f_abs(v), largest);
        poison = f_fma(v, f_zero(), poison);
      }
      const float most = f_largest(largest) + f_sum(poison);
      const bool finite = most - most == 0;
      scales[first / kBlock * width + c] = finite ? most / 32767 : most;
      // A block of tiny numbers, whose inverse would overflow, has a scale that rounds them to 0.
      const F inverse = f_set(finite && most > 1e-30f ? 32767 / most : 0);
      for (int64_t i = 0; i < count; i += 32) {
        alignas(64) int32_t codes[32];
        const F low = f_load(column + first + i), high = f_load(column + first + i + 16);
        i_store(codes, i_from_f(f_mul(finite ? low : f_zero(), inverse)));
        i_store(codes + 16, i_from_f(f_mul(finite ? high : f_zero(), inverse)));
        int32_t sum_low = 0, sum_high = 0;
        for (int j = 0; j < 16; ++j) {
          sum_low += codes[j];
          sum_high += codes[j + 16];
        }
        int32_t* out = pairs + (first + i) / 2 * width + c;
        for (int j = 0; j < 16; ++j)
          out[j * width] = static_cast<int32_t>((static_cast<uint32_t>(codes[2 * j]) & 0xffffu) |
                                                static_cast<uint32_t>(codes[2 * j + 1]) << 16);
        sums16[(first + i) / 16 * width + c] = static_cast<float>(sum_low);
        sums16[((first + i) / 16 + 1) * width + c] = static_cast<float>(sum_high);
        sums32[(first + i) / 32 * width + c] = static_cast<float>(sum_low + sum_high);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::exec::cpu
