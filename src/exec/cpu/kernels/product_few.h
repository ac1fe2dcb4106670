// Products of quantized weights with one column or a few: codes go from memory straight into the
// sums, which takes about as long as reading them. See product_int.h, which includes this.
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

// Asks for part number `part` of `parts` of some bytes that lie in `count` places, `stride` apart.
LS_LANE void ask_for(const std::byte* bytes, int64_t stride, int64_t count, int64_t length,
                     int64_t part, int64_t parts) {
  constexpr int64_t kLine = 64;
  const int64_t lines = (length + kLine - 1) / kLine;
  const int64_t begin = lines * part / parts, end = lines * (part + 1) / parts;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t line = begin; line < end; ++line)
      __builtin_prefetch(bytes + i * stride + line * kLine);
}

// Where results will be stored: the lines may be in the cache of a thread that
// used them before.
LS_LANE void ask_for_rows(const Product& product, int64_t panel, int64_t panels, int64_t column,
                          int64_t count) {
  for (int64_t c = column; c < column + count; ++c)
    for (int64_t p = panel; p < panel + panels; ++p)
      __builtin_prefetch(product.out + c * product.out_stride + p * kPanelRows, 1);
}

// How far ahead memory is asked for, in bytes: beyond what the hardware does by itself.
constexpr int64_t kAhead = 2048;

// One column, from kStreams panels at once; where only one is left, all streams read it.
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

// Up to N columns, which are one tile. Where there are fewer, numbers that lie behind them
// (kColumnsBehind) take their places, and what comes of those is not stored.
template <CodeFormat P, int N, int Streams>
void multiply_few(const Product& product, int64_t panel) {
  const Columns& x = *product.x;
  const int64_t w = x.count, stride = product.panel_bytes;
  const std::byte* base = product.panels + panel * stride;
  const Table table = level_table<P>();
  F total[Streams][N];
  unrolled<0, Streams * N>([&](auto i) { total[i / N][i % N] = f_zero(); });
  const float* sums = P.group == 16 ? x.sums16 : x.sums32;
  for (int64_t first = 0; first < x.length; first += kBlock) {
    const int64_t columns = x.length - first < kBlock ? x.length - first : kBlock;
    BlockScales<P> scales[Streams];
    F block[Streams][N];
    unrolled<0, Streams>([&](auto s) { scales[s] = BlockScales<P>::at(base + s * stride); });
    unrolled<0, Streams * N>([&](auto i) { block[i / N][i % N] = f_zero(); });
    const std::byte* units = base + scale_bytes(P, columns);
    for (int64_t unit = 0; unit < columns / kUnit; ++unit) {
      const int32_t* pairs = x.pairs + (first + unit * kUnit) / 2 * w;
      unrolled<0, Streams>([&](auto s) {
        const std::byte* ahead = units + s * stride + unit * unit_bytes(P) + kAhead;
        for (int64_t line = 0; line < unit_bytes(P); line += 64) __builtin_prefetch(ahead + line);
      });
      unrolled<0, kUnit / P.group>([&](auto g) {
        constexpr int kPairs = P.group / 2;
        constexpr int kFirst = decltype(g)::value * kPairs;
        I sum[Streams][N];
        unrolled<0, Streams * N>([&](auto i) { sum[i / N][i % N] = i_zero(); });
        unrolled<kFirst, kFirst + kPairs>([&](auto p) {
          constexpr int kPair = decltype(p)::value;
          I weight[Streams];
          unrolled<0, Streams>([&](auto s) {
            weight[s] = code_pair<P, kPair>(units + s * stride + unit * unit_bytes(P), table);
          });
          unrolled<0, N>([&](auto c) {
            const I a = i_set(pairs[kPair * w + c]);
            unrolled<0, Streams>([&](auto s) { sum[s][c] = i_dot(sum[s][c], weight[s], a); });
          });
        });
        const int64_t group = unit * (kUnit / P.group) + g;
        unrolled<0, Streams>([&](auto s) {
          F scale = f_zero(), min = f_zero();
          scales[s].get(group, scale, min);
          unrolled<0, N>([&](auto c) {
            block[s][c] = f_fma(f_from_i(sum[s][c]), scale, block[s][c]);
            if constexpr (P.has_min())
              block[s][c] = f_fma(min, f_set(sums[(first / P.group + group) * w + c]), block[s][c]);
          });
        });
      });
    }
    unrolled<0, N>([&](auto c) {
      const F a_scale = f_set(x.scales[first / kBlock * w + c]);
      unrolled<0, Streams>([&](auto s) { total[s][c] = f_fma(block[s][c], a_scale, total[s][c]); });
    });
    base += block_bytes(P, columns);
  }
  unrolled<0, Streams * N>([&](auto i) {
    if (i % N < w) store_rows(product, panel + i / N, i % N, total[i / N][i % N]);
  });
}

template <CodeFormat P, int N, int Streams>
void few_columns(const Product& product, int64_t first, int64_t end) {
  int64_t panel = first;
  for (; panel + Streams <= end; panel += Streams) multiply_few<P, N, Streams>(product, panel);
  if constexpr (Streams > 1)
    for (; panel < end; ++panel) multiply_few<P, N, 1>(product, panel);
}

}  // namespace
}  // namespace lockstep::exec::cpu
