// The code of target_*.cpp. A target says what eight doubles and some floats in registers are:
// `Eight` and `Singles`, and how many sums fit into its registers.
#include <cstring>

#include "exec/f64/kernels/kernels.h"

namespace lockstep::exec::f64 {
namespace {

// Calls call<rows>(first) for as many rows at a time as registers hold, then for the rest.
template <int kRows, class Call>
void in_tiles(int64_t rows, const Call& call) {
  int64_t first = 0;
  for (; first + kRows <= rows; first += kRows) call.template operator()<kRows>(first);
  if constexpr (kRows > 1) {
    const auto rest = [&]<int kFewer>(const auto& self) {
      if (rows - first == kFewer)
        call.template operator()<kFewer>(first);
      else if constexpr (kFewer > 1)
        self.template operator()<kFewer - 1>(self);
    };
    rest.template operator()<kRows - 1>(rest);
  }
}

// Adds a block's running sums to those so far, and what that loses to what was lost.
inline void join(const Eight& block, bool first, double* sums, double* lost) {
  if (first) {
    Eight::store(sums, block);
    Eight::store(lost, Eight::zero());
    return;
  }
  const Eight sum = Eight::load(sums);
  const Eight next = Eight::add(sum, block);
  const Eight part = Eight::subtract(next, sum);
  const Eight rest =
      Eight::add(Eight::subtract(sum, Eight::subtract(next, part)), Eight::subtract(block, part));
  Eight::store(sums, next);
  Eight::store(lost, Eight::add(Eight::load(lost), rest));
}

// Some rows of the panel times some rows of x, with all running sums in registers: the loops over
// them are unrolled, or compilers put them into memory.
template <bool kFused, int kRows, class Weight>
inline void multiply_tile(const Weight* w, const double* x, const Operands& operands, double* sums,
                          double* lost) {
  constexpr int kWeights = Eight::kWeights;
  Eight block[kRows][kWeights];
#pragma GCC unroll 8
  for (int t = 0; t < kRows; ++t)
#pragma GCC unroll 8
    for (int r = 0; r < kWeights; ++r) block[t][r] = Eight::zero();
  for (int64_t column = 0; column < operands.columns; column += kLanes) {
    Eight weights[kWeights];
#pragma GCC unroll 8
    for (int r = 0; r < kWeights; ++r) weights[r] = Eight::load(w + r * operands.w_stride + column);
#pragma GCC unroll 8
    for (int t = 0; t < kRows; ++t) {
      const Eight factor = Eight::load(x + t * operands.x_stride + column);
#pragma GCC unroll 8
      for (int r = 0; r < kWeights; ++r)
        block[t][r] = kFused ? Eight::fused(weights[r], factor, block[t][r])
                             : Eight::add(block[t][r], Eight::multiply(weights[r], factor));
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kRows; ++t)
#pragma GCC unroll 8
    for (int r = 0; r < kWeights; ++r) {
      const int64_t place = (t * kPanel + r) * kLanes;
      join(block[t][r], operands.first, sums + place, lost + place);
    }
}

template <bool kFused, class Weight>
void add_panel(const Weight* w, const Operands& operands, double* sums, double* lost) {
  in_tiles<Eight::kRows>(operands.x_rows, [&]<int kRows>(int64_t first) {
    for (int64_t r = 0; r < kPanel; r += Eight::kWeights) {
      const int64_t place = (first * kPanel + r) * kLanes;
      multiply_tile<kFused, kRows>(w + r * operands.w_stride,
                                   operands.x + first * operands.x_stride, operands, sums + place,
                                   lost + place);
    }
  });
}

template <class Weight>
void add_any(const Weight* w, const Operands& operands, double* sums, double* lost) {
  if (operands.exact_products)
    add_panel<true>(w, operands, sums, lost);
  else
    add_panel<false>(w, operands, sums, lost);
}

void add(const Operands& operands, double* sums, double* lost) {
  if (operands.w != nullptr)
    add_any(operands.w, operands, sums, lost);
  else
    add_any(operands.singles, operands, sums, lost);
}

// Eights of the panel's rows, times some rows of x, all columns in registers.
template <int kRows>
inline void multiply_quickly(const double* w, const double* x, const QuickOperands& operands,
                             double* sums) {
  constexpr int kEights = Eight::kEights;
  Eight block[kRows][kEights];
#pragma GCC unroll 8
  for (int t = 0; t < kRows; ++t)
#pragma GCC unroll 8
    for (int r = 0; r < kEights; ++r)
      block[t][r] = operands.first ? Eight::zero() : Eight::load(sums + t * kPanel + r * kLanes);
  for (int64_t column = 0; column < operands.columns; ++column) {
    Eight weights[kEights];
#pragma GCC unroll 8
    for (int r = 0; r < kEights; ++r) weights[r] = Eight::load(w + column * kPanel + r * kLanes);
#pragma GCC unroll 8
    for (int t = 0; t < kRows; ++t) {
      const Eight factor = Eight::set(x[t * operands.x_stride + column]);
#pragma GCC unroll 8
      for (int r = 0; r < kEights; ++r) block[t][r] = Eight::fused(weights[r], factor, block[t][r]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kRows; ++t)
#pragma GCC unroll 8
    for (int r = 0; r < kEights; ++r) Eight::store(sums + t * kPanel + r * kLanes, block[t][r]);
}

void add_quickly(const QuickOperands& operands, double* sums) {
  in_tiles<Eight::kQuickRows>(operands.x_rows, [&]<int kRows>(int64_t first) {
    for (int64_t r = 0; r < kPanel; r += Eight::kEights * kLanes)
      multiply_quickly<kRows>(operands.w + r, operands.x + first * operands.x_stride, operands,
                              sums + first * kPanel + r);
  });
}

using EightDoubles = double __attribute__((vector_size(kLanes * sizeof(double))));

// The sums of eight products from their running sums, in the order of reference::across.
inline void across_eight(const double* sums, EightDoubles& out) {
  EightDoubles e[8];
  std::memcpy(e, sums, sizeof e);
  EightDoubles pairs[4];
  for (int i = 0; i < 4; ++i)
    pairs[i] = __builtin_shufflevector(e[2 * i], e[2 * i + 1], 0, 8, 2, 10, 4, 12, 6, 14) +
               __builtin_shufflevector(e[2 * i], e[2 * i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  EightDoubles halves[2];
  for (int i = 0; i < 2; ++i)
    halves[i] = __builtin_shufflevector(pairs[2 * i], pairs[2 * i + 1], 0, 1, 8, 9, 4, 5, 12, 13) +
                __builtin_shufflevector(pairs[2 * i], pairs[2 * i + 1], 2, 3, 10, 11, 6, 7, 14, 15);
  out = __builtin_shufflevector(halves[0], halves[1], 0, 1, 2, 3, 8, 9, 10, 11) +
        __builtin_shufflevector(halves[0], halves[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

void finish(const double* sums, const double* lost, int64_t count, double* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    EightDoubles sum;
    EightDoubles of_lost;
    across_eight(sums + i * kLanes, sum);
    across_eight(lost + i * kLanes, of_lost);
    const EightDoubles total = sum + of_lost;
    // An infinite sum has lost infinity - infinity.
    const EightDoubles chosen = total == total ? total : sum;
    std::memcpy(out + i, &chosen, sizeof chosen);
  }
}

void widen(const float* from, int64_t count, bool squared, double* to) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Eight x = Eight::load(from + i);
    Eight::store(to + i, squared ? Eight::multiply(x, x) : x);
  }
}

void transpose(const float* rows, int64_t stride, int64_t columns, float* to) {
  int64_t column = 0;
  for (; column + Singles::kSquare <= columns; column += Singles::kSquare)
    for (int64_t r = 0; r < kPanel; r += Singles::kSquare)
      Singles::transpose(rows + r * stride + column, stride, to + column * kPanel + r, kPanel);
  for (; column < columns; ++column)
    for (int64_t r = 0; r < kPanel; ++r) to[column * kPanel + r] = rows[r * stride + column];
}

template <int kRows>
void estimate_rows(const float* w, const float* x, int64_t blocks, int64_t rows,
                   const EstimatedSums& out) {
  constexpr int kRegisters = Singles::kWidth / Singles::kLanes;
  for (int64_t block = 0; block < blocks;
       ++block, w += kEstimateBlock * kPanel, x += rows * kEstimateBlock)
    for (int64_t part = 0; part < kPanel; part += Singles::kWidth) {
      Singles sums[kRows][kRegisters];
      for (int t = 0; t < kRows; ++t)
        for (int i = 0; i < kRegisters; ++i) sums[t][i] = Singles::zero();
      for (int64_t column = 0; column < kEstimateBlock; ++column) {
        Singles weights[kRegisters];
        for (int i = 0; i < kRegisters; ++i)
          weights[i] = Singles::load(w + column * kPanel + part + i * Singles::kLanes);
        for (int t = 0; t < kRows; ++t) {
          const Singles factor = Singles::set(x[t * kEstimateBlock + column]);
          for (int i = 0; i < kRegisters; ++i)
            sums[t][i] = Singles::fused(weights[i], factor, sums[t][i]);
        }
      }
      for (int t = 0; t < kRows; ++t)
        for (int i = 0; i < kRegisters; ++i) {
          const int64_t place = t * kPanel + part + i * Singles::kLanes;
          const Singles next = Singles::add(Singles::load(out.sum + place), sums[t][i]);
          Singles::store(out.sum + place, next);
          if (out.partial == nullptr) continue;
          Singles::store(out.partial + place,
                         Singles::add(Singles::load(out.partial + place), next));
          Singles::store(out.partial_squares + place,
                         Singles::fused(next, next, Singles::load(out.partial_squares + place)));
        }
    }
}

void estimate(const float* w, const float* x, int64_t blocks, int64_t rows,
              const EstimatedSums& out) {
  in_tiles<Singles::kRows>(rows, [&]<int kRows>(int64_t first) {
    const int64_t place = first * kPanel;
    EstimatedSums some = {out.sum + place};
    if (out.partial != nullptr)
      some = {out.sum + place, out.partial + place, out.partial_squares + place};
    estimate_rows<kRows>(w, x + first * kEstimateBlock, blocks, rows, some);
  });
}

// Each sum runs in as many registers side by side as there is room for, so that no addition waits
// for another. No lane has more than a sixteenth of the columns.
void estimate_few(const float* w, int64_t columns, const float* const* x, int64_t step,
                  float* sums) {
  constexpr int64_t kRegisters = kEstimateBlock / Singles::kLanes;
  constexpr int64_t kChains = Singles::kLanes >= 8 ? Singles::kLanes / 4 : kRegisters;
  Singles parts[kFewSums][kChains];
#pragma GCC unroll 4
  for (int64_t t = 0; t < kFewSums; ++t)
#pragma GCC unroll 16
    for (int64_t i = 0; i < kChains; ++i) parts[t][i] = Singles::zero();
  int64_t place = 0;  // in the rows of x
  const auto add = [&](int64_t i) {
    const int64_t lane = i * Singles::kLanes;
    const Singles weights = Singles::load(w + lane);
#pragma GCC unroll 4
    for (int64_t t = 0; t < kFewSums; ++t) {
      Singles& part = parts[t][i % kChains];
      part = Singles::fused(weights, Singles::load(x[t] + place + lane), part);
    }
  };
  for (; columns >= kEstimateBlock; columns -= kEstimateBlock, w += kEstimateBlock, place += step)
#pragma GCC unroll 16
    for (int64_t i = 0; i < kRegisters; ++i) add(i);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kRegisters; ++i)
    if (i * Singles::kLanes < columns) add(i);
#pragma GCC unroll 4
  for (int64_t t = 0; t < kFewSums; ++t) {
    Singles sum = parts[t][0];
#pragma GCC unroll 16
    for (int64_t i = 1; i < kChains; ++i) sum = Singles::add(sum, parts[t][i]);
    float lanes[Singles::kLanes];
    Singles::store(lanes, sum);
    for (int64_t count = Singles::kLanes / 2; count > 0; count /= 2)
      for (int64_t i = 0; i < count; ++i) lanes[i] += lanes[i + count];
    sums[t] = lanes[0];
  }
}

}  // namespace
}  // namespace lockstep::exec::f64
