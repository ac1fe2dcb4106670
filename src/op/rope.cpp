#include "op/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace lockstep::op {
namespace {

// The pair that turns `turns` times over the original context (a real number).
double pair_with_turns(const Rope& rope, double turns) {
  const auto context = static_cast<double>(rope.yarn->original_context);
  return static_cast<double>(rope.dims) * std::log(context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.base));
}

}  // namespace

std::vector<double> rope_frequencies(const Rope& rope) {
  const int64_t pairs = rope.dims / 2;
  LS_CHECK(rope.factors.empty() || static_cast<int64_t>(rope.factors.size()) == pairs);
  double first_slow = 0;
  double last_fast = 0;
  if (rope.yarn) {
    last_fast = pair_with_turns(rope, rope.yarn->beta_fast);
    first_slow = pair_with_turns(rope, rope.yarn->beta_slow);
    if (rope.yarn->whole_pairs) {
      last_fast = std::floor(last_fast);
      first_slow = std::ceil(first_slow);
    }
    last_fast = std::max(0.0, last_fast);
    first_slow = std::min(static_cast<double>(rope.dims - 1), first_slow);
  }
  std::vector<double> frequencies(static_cast<size_t>(pairs));
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const auto i = static_cast<size_t>(pair);
    double own =
        std::pow(rope.base, -2 * static_cast<double>(pair) / static_cast<double>(rope.dims));
    if (!rope.factors.empty()) own /= static_cast<double>(rope.factors[i]);
    double interpolated_share = 1;
    if (rope.yarn) {
      const double ramp =
          (static_cast<double>(pair) - last_fast) / std::max(0.001, first_slow - last_fast);
      interpolated_share = std::clamp(ramp, 0.0, 1.0);
    }
    frequencies[i] = own * (rope.position_scale * interpolated_share + (1 - interpolated_share));
  }
  return frequencies;
}

double rope_magnitude(const Rope& rope) {
  // YaRN sharpens attention as the context grows.
  if (!rope.yarn) return rope.magnitude;
  return rope.magnitude * (1 + 0.1 * std::log(1 / rope.position_scale));
}

}  // namespace lockstep::op
