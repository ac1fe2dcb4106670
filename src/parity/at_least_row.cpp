#include "parity/at_least_row.h"

#include "parity/rounding.h"
#include "parity/wide.h"

namespace lockstep::parity {
namespace {

// rounded_once() without its branch.
struct OneRounding {
  double unit;
  double tiny_squared;

  explicit OneRounding(double unit_of_type)
      : unit(unit_of_type), tiny_squared(square(tiny(unit_of_type))) {}
  double of(double value) const { return (square(value * unit) + tiny_squared) * kThird; }
};

// Without branches, so that compilers use vector registers.
template <bool kAdding, bool kPartial, bool kRounding, bool kWeights>
[[gnu::always_inline]] inline void at_least_columns(const AtLeastRow& r) {
  const double* __restrict ys = r.y;
  const double* __restrict biases = r.bias;
  const float* __restrict all_sums = r.sums;
  const float* __restrict all_partial = r.partial;
  const float* __restrict all_partial_squares = r.partial_squares;
  const float* __restrict all_squares = r.squares;
  const float* __restrict all_chance = r.chance;
  const float* __restrict all_known = r.known;
  const double* __restrict weight_rounds = r.weight_rounds;
  double* __restrict out = r.out;
  const double error = r.error;
  const double of_sum = square(r.compute) * kThird * r.n;
  const double of_partial = square(4 * error) * r.n;
  const double known_off = of_known(r.deviation, r.n, error);
  const double scale = r.sums_scale;
  const double share = r.block_share;
  const OneRounding computed(r.compute);
  const OneRounding handed_on(r.handed_on);
  const OneRounding of_bias(r.bias_unit);
  const double rounds_bias = r.bias_unit > 0 ? 1 : 0;
  for (int64_t i = 0; i < r.columns; ++i) {
    const double y = ys[i];
    const double bias = biases[i];
    const double sum_squared = square(y - bias);
    // Where adding up does next to nothing beside other rounding, it is left out.
    const double squares = kAdding ? static_cast<double>(all_squares[i]) * r.squares_scale : 0;
    const double least_squares = squares * (1 - error);
    double partial = least_squares / 2 + sum_squared * kThird;
    if constexpr (kPartial) {
      // Root mean squares of the partial sums, in the order of the terms and its reverse.
      const double last = static_cast<double>(all_sums[i]) * scale;
      const double mean = share * (static_cast<double>(all_partial[i]) * scale - last / 2);
      const double mean_squares =
          share * (static_cast<double>(all_partial_squares[i]) * square(scale) - square(last) / 2);
      const double reverse = square(last) - 2 * last * mean + mean_squares;
      const double in_order = mean_squares < reverse ? reverse : mean_squares;
      // No partial sum is off by more than 4 errors of all their sizes.
      const double least = less(in_order, of_partial * squares * (1 + error));
      partial = partial < least ? least : partial;
    }
    double v = of_sum * partial + r.of_terms * least_squares + (computed.of(y) + handed_on.of(y));
    if constexpr (kRounding)
      v += of_rounded_factors(static_cast<double>(all_chance[i]) * r.chance_scale,
                              static_cast<double>(all_known[i]) * r.known_scale, known_off, error);
    if constexpr (kWeights)
      v += weight_rounds[i] * (r.of_weights * least_squares + r.of_tiny_weights);
    v += r.of_added * sum_squared;
    v += r.of_small_floats * (least_squares / 2 + sum_squared * kThird);
    const double bias_rounded = rounds_bias * of_bias.of(bias);
    v += bias != 0 ? bias_rounded : 0;
    v *= 1 - 1e-9;
    out[i] = v - v == 0 ? v : 0;  // only what is finite
  }
}

template <bool kAdding, bool kPartial>
[[gnu::always_inline]] inline void at_least_of(const AtLeastRow& row) {
  if (row.weight_rounds != nullptr)
    at_least_columns<kAdding, kPartial, true, true>(row);
  else if (row.chance != nullptr)
    at_least_columns<kAdding, kPartial, true, false>(row);
  else
    at_least_columns<kAdding, kPartial, false, false>(row);
}

[[gnu::always_inline]] inline void at_least_of_any(const AtLeastRow& row) {
  if (row.partial != nullptr)
    at_least_of<true, true>(row);
  else if (row.squares != nullptr)
    at_least_of<true, false>(row);
  else
    at_least_of<false, false>(row);
}

// The same code for each kind of machine.
void at_least_anywhere(const AtLeastRow& row) {
  at_least_of_any(row);
}
#ifdef __x86_64__
[[gnu::target("avx2")]] void at_least_avx2(const AtLeastRow& row) {
  at_least_of_any(row);
}
[[gnu::target("avx512f,avx512dq,avx512vl")]] void at_least_avx512(const AtLeastRow& row) {
  at_least_of_any(row);
}
#endif

using WriteAtLeast = void (*)(const AtLeastRow&);

WriteAtLeast best_at_least() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return at_least_avx512;
  if (__builtin_cpu_supports("avx2")) return at_least_avx2;
#endif
  return at_least_anywhere;
}

using ChanceLanes = float __attribute__((vector_size(kTermLanes * sizeof(float))));

// Eight at a time.
LS_WIDE uint32_t find_beyond_chance(const BesideChance* of) {
  uint32_t out = 0;
  for (int64_t i = 0; i < of->count; i += kTermLanes) {
    const auto left = static_cast<size_t>(of->count - i);
    LS_LOAD(recorded, of->recorded + i, left);
    LS_LOAD(replayed, of->replayed + i, left);
    ChanceLanes chance = {};
    if (left >= kTermLanes) {
      std::memcpy(&chance, of->chance + i, sizeof chance);
    } else {
      for (size_t j = 0; j < left; ++j) chance[j] = of->chance[i + static_cast<int64_t>(j)];
    }
    const TermLanes error = recorded - replayed;
    const TermBits beyond = error * error > of->limit * __builtin_convertvector(chance, TermLanes);
    const TermBits places = {1, 2, 4, 8, 16, 32, 64, 128};
    const TermBits bits = beyond & places;
    const int64_t byte =
        ((bits[0] | bits[1]) | (bits[2] | bits[3])) | ((bits[4] | bits[5]) | (bits[6] | bits[7]));
    out |= static_cast<uint32_t>(byte) << i;
  }
  return out;
}

}  // namespace

uint32_t beyond_chance(const BesideChance& elements) {
  return find_beyond_chance(&elements);
}

void write_at_least(const AtLeastRow& row) {
  static const WriteAtLeast best = best_at_least();
  best(row);
}

}  // namespace lockstep::parity
