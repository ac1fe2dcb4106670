#include "parity/powers.h"

#include <algorithm>
#include <cmath>

#include "parity/wide.h"

namespace lockstep::parity {
namespace {

// 1/n!, from the last term of the series that is taken to the first.
constexpr double kInverseFactorials[] = {1.0 / 6227020800,
                                         1.0 / 479001600,
                                         1.0 / 39916800,
                                         1.0 / 3628800,
                                         1.0 / 362880,
                                         1.0 / 40320,
                                         1.0 / 5040,
                                         1.0 / 720,
                                         1.0 / 120,
                                         1.0 / 24,
                                         1.0 / 6,
                                         0.5,
                                         1,
                                         1};

// e to the power of each number minus `largest`, to within a few units of double precision: 2^k
// times the series of what is left of the exponent. Their sum is returned.
LS_WIDE double raise(const double* numbers, size_t count, double largest, double* out) {
  constexpr double kRounding = 0x1.8p52;  // added, it leaves a whole number in the last bits
  constexpr double kLeast = -708;         // powers below are no ordinary numbers, and count as 0
  const TermLanes zero = {};
  TermLanes sums = {};
  for (size_t i = 0; i < count; i += kTermLanes) {
    const size_t left = count - i;
    LS_LOAD(number, numbers + i, left);
    const TermLanes x = number - largest;
    const TermLanes rounded = x * 0x1.71547652b82fep0 + kRounding;
    const TermLanes k = rounded - kRounding;
    const TermLanes rest = (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33;
    TermLanes series = zero;
    for (const double factor : kInverseFactorials) series = series * rest + factor;
    const TermBits exponent = (reinterpret_cast<TermBits>(rounded) + 1023) << 52;
    TermLanes power = series * reinterpret_cast<TermLanes>(exponent);
    power = x < kLeast ? zero : power;
    LS_STORE(power, out + i, left);
    // Lanes behind the end hold no number.
    for (size_t j = left; j < kTermLanes; ++j) power[j] = 0;
    sums += power;
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace

Powers::Powers(std::span<const double> logits)
    : largest(*std::ranges::max_element(logits)),
      each(logits.size()),
      sum(raise(logits.data(), logits.size(), largest, each.data())) {}

double Powers::log_of_all() const {
  return largest + std::log(sum);
}

}  // namespace lockstep::parity
