#include "parity/lane_sums.h"

#include <algorithm>
#include <cmath>

#include "parity/rounding.h"
#include "parity/summation.h"

namespace lockstep::parity {
namespace {

// exec/reference/sums.h, eight at a time.
#define LS_ADD_EXACTLY(term, sum, lost)                    \
  {                                                        \
    const TermLanes next_sum = sum + term;                 \
    const TermLanes in_sum = next_sum - sum;               \
    lost += (sum - (next_sum - in_sum)) + (term - in_sum); \
    sum = next_sum;                                        \
  }                                                        \
  static_cast<void>(0)

// Where the sum is infinite, what it lost is not a number.
#define LS_WITH_LOST(sum, lost) ((sum) + (lost) == (sum) + (lost) ? (sum) + (lost) : (sum))

#define LS_ACROSS(parts)                             \
  (((parts[0] + parts[1]) + (parts[2] + parts[3])) + \
   ((parts[4] + parts[5]) + (parts[6] + parts[7])))

LS_WIDE void add_dots(const LaneTerms& terms, double* out) {
  constexpr size_t kParts = 8;
  constexpr size_t kDotBlock = 32 * kParts;
  TermLanes sums[kParts] = {};
  TermLanes lost[kParts] = {};
  for (size_t first = 0; first < terms.count; first += kDotBlock) {
    const size_t end = std::min(terms.count, first + kDotBlock);
    TermLanes block[kParts] = {};
    size_t i = first;
    for (; i + kParts <= end; i += kParts)
      for (size_t part = 0; part < kParts; ++part) {
        LS_LOAD(numbers, terms.at(i + part), terms.lanes);
        block[part] += terms.factors[i + part] * numbers;
      }
    for (; i < end; ++i) {
      LS_LOAD(numbers, terms.at(i), terms.lanes);
      block[i % kParts] += terms.factors[i] * numbers;
    }
    for (size_t part = 0; part < kParts; ++part)
      LS_ADD_EXACTLY(block[part], sums[part], lost[part]);
  }
  const TermLanes sum = LS_ACROSS(sums);
  const TermLanes of_lost = LS_ACROSS(lost);
  const TermLanes total = LS_WITH_LOST(sum, of_lost);
  std::memcpy(out, &total, sizeof total);
}

// Terms at eight neighbouring places are added up before they join the sum.
LS_WIDE void add_mixes(const LaneTerms& terms, double* out) {
  constexpr int64_t kTogether = 8;
  TermLanes sum = {};
  TermLanes lost = {};
  for (size_t i = 0; i < terms.count;) {
    const int64_t together = terms.places[i] / kTogether;
    TermLanes block = {};
    for (; i < terms.count && terms.places[i] / kTogether == together; ++i) {
      LS_LOAD(numbers, terms.at(i), terms.lanes);
      block += terms.factors[i] * numbers;
    }
    LS_ADD_EXACTLY(block, sum, lost);
  }
  const TermLanes total = LS_WITH_LOST(sum, lost);
  std::memcpy(out, &total, sizeof total);
}

LS_WIDE void add_lanes(const LaneTerms& terms, bool squared, double* out) {
  TermLanes sum = {};
  for (size_t i = 0; i < terms.count; ++i) {
    LS_LOAD(numbers, terms.at(i), terms.lanes);
    sum += terms.factors[i] * (squared ? numbers * numbers : numbers);
  }
  std::memcpy(out, &sum, sizeof sum);
}

// Numbers beside which doubles are as far apart as numbers of the type are beside x.
#define LS_BESIDE(x)         \
  (0x1.8p53 * unit_of_type * \
   reinterpret_cast<TermLanes>(reinterpret_cast<TermBits>(x) & 0x7ff0'0000'0000'0000LL))

#define LS_LARGER(a, b) ((a) > (b) ? (a) : (b))

// As statistics_of and noise_of_sum do it.
LS_WIDE void walk_lanes(const LaneTerms& terms, const double* sums, double unit_of_type,
                        const double* variances, LaneNoise* out) {
  constexpr size_t kLaneBlock = 64;
  LS_LOAD(sum, sums, kTermLanes);
  TermLanes squares = {};
  TermLanes absolute = {};
  TermLanes largest = {};
  TermLanes errors = {};
  TermLanes reverse_errors = {};
  TermLanes number_squares = {};
  TermLanes spread = {};
  TermLanes partial = {};
  TermLanes mean = {};  // of the partial sums, and of their squares
  TermLanes mean_squares = {};
  TermLanes reach = {};
  const auto n = static_cast<double>(terms.count);
  for (size_t first = 0; first < terms.count; first += kLaneBlock) {
    const size_t end = std::min(terms.count, first + kLaneBlock);
    const TermLanes here = LS_BESIDE(partial);
    const TermLanes rest = sum - partial;
    const TermLanes there = LS_BESIDE(rest);
    TermLanes block = {};
    for (size_t i = first; i < end; ++i) {
      LS_LOAD(numbers, terms.at(i), terms.lanes);
      const TermLanes term = terms.factors[i] * numbers;
      const TermLanes size = LS_SIZES(term);
      block += term;
      squares += term * term;
      absolute += size;
      largest = LS_LARGER(size, largest);
      if (first > 0) errors += ((term + here) - here) - term;
      reverse_errors += ((term + there) - there) - term;
      number_squares += numbers * numbers;
      if (variances != nullptr) spread += variances[i] * ((numbers - sum) * (numbers - sum));
    }
    const TermLanes before = partial;
    partial += block;
    const double share = static_cast<double>(end - first) / n;
    mean += share * (before + partial) / 2;
    mean_squares += share * (before * before + partial * partial) / 2;
    const TermLanes reached = LS_SIZES(partial);
    reach = LS_LARGER(reached, reach);
  }
  const TermLanes of_reverse = sum * sum - 2 * sum * mean + mean_squares;
  const TermLanes at_random = squares / 2 + sum * sum / 3;
  TermLanes most = LS_LARGER(mean_squares, of_reverse);
  most = LS_LARGER(most, at_random);
  const TermLanes chance = unit_of_type * unit_of_type / 3 * n * most;
  const TermLanes in_order = LS_SIZES(errors);
  const TermLanes reversed = LS_SIZES(reverse_errors);
  const TermLanes known = LS_LARGER(in_order, reversed);
  const TermLanes variance = known * known > 4 * chance ? chance + known * known : chance;
  reach = LS_LARGER(reach, largest);
  const TermLanes large = kLarge * absolute / n;
  const TermLanes others = largest <= large ? absolute : absolute - squares / large;
  const TermBits settled = others >= n * safe_units(unit_of_type) * unit_of_type * reach;
  std::memcpy(out->variance, &variance, sizeof variance);
  std::memcpy(out->settled, &settled, sizeof settled);
  std::memcpy(out->squares, &squares, sizeof squares);
  std::memcpy(out->number_squares, &number_squares, sizeof number_squares);
  std::memcpy(out->spread, &spread, sizeof spread);
}

}  // namespace

void lane_sums(const LaneTerms& terms, double* sums, bool squared) {
  add_lanes(terms, squared, sums);
}

void lane_dots(const LaneTerms& terms, double* sums) {
  add_dots(terms, sums);
}

void lane_mixes(const LaneTerms& terms, double* sums) {
  add_mixes(terms, sums);
}

void lane_noise(const LaneTerms& terms, const double* sums, double unit_of_type,
                const double* variances, LaneNoise& out) {
  walk_lanes(terms, sums, unit_of_type, variances, &out);
  // In the smallest types some terms are always lost.
  if (unit_of_type > kSingle) std::ranges::fill(out.settled, 0);
}

}  // namespace lockstep::parity
