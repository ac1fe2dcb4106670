// The code of target_*.cpp. A target says what eight doubles and some floats in registers are:
// `Eight` and `Singles`, and how many sums fit into its registers.
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

// Some rows of the panel times some rows of x, with all running sums in registers.
template <bool kFused, int kRows>
inline void multiply_tile(const double* w, const double* x, const Operands& operands, double* sums,
                          double* lost) {
  constexpr int kWeights = Eight::kWeights;
  Eight block[kRows][kWeights];
  for (int t = 0; t < kRows; ++t)
    for (int r = 0; r < kWeights; ++r) block[t][r] = Eight::zero();
  for (int64_t column = 0; column < operands.columns; column += kLanes) {
    Eight weights[kWeights];
    for (int r = 0; r < kWeights; ++r) weights[r] = Eight::load(w + r * operands.w_stride + column);
    for (int t = 0; t < kRows; ++t) {
      const Eight factor = Eight::load(x + t * operands.x_stride + column);
      for (int r = 0; r < kWeights; ++r)
        block[t][r] = kFused ? Eight::fused(weights[r], factor, block[t][r])
                             : Eight::add(block[t][r], Eight::multiply(weights[r], factor));
    }
  }
  for (int t = 0; t < kRows; ++t)
    for (int r = 0; r < kWeights; ++r) {
      const int64_t place = (t * kPanel + r) * kLanes;
      if (operands.first) {
        Eight::store(sums + place, block[t][r]);
        Eight::store(lost + place, Eight::zero());
        continue;
      }
      const Eight sum = Eight::load(sums + place);
      const Eight next = Eight::add(sum, block[t][r]);
      const Eight part = Eight::subtract(next, sum);
      const Eight rest = Eight::add(Eight::subtract(sum, Eight::subtract(next, part)),
                                    Eight::subtract(block[t][r], part));
      Eight::store(sums + place, next);
      Eight::store(lost + place, Eight::add(Eight::load(lost + place), rest));
    }
}

template <bool kFused>
void add_panel(const Operands& operands, double* sums, double* lost) {
  in_tiles<Eight::kRows>(operands.x_rows, [&]<int kRows>(int64_t first) {
    for (int64_t r = 0; r < kPanel; r += Eight::kWeights) {
      const int64_t place = (first * kPanel + r) * kLanes;
      multiply_tile<kFused, kRows>(operands.w + r * operands.w_stride,
                                   operands.x + first * operands.x_stride, operands, sums + place,
                                   lost + place);
    }
  });
}

void add(const Operands& operands, double* sums, double* lost) {
  if (operands.exact_products)
    add_panel<true>(operands, sums, lost);
  else
    add_panel<false>(operands, sums, lost);
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

}  // namespace
}  // namespace lockstep::exec::f64
