#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::engine {

Logprobs logprobs_of(const View& logits, int64_t row, exec::TokenId chosen, int64_t top) {
  const int64_t vocabulary = logits.shape.back();
  std::vector<Logprob> all;
  all.reserve(static_cast<size_t>(vocabulary));
  for (int64_t i = 0; i < vocabulary; ++i) {
    const double value = logits.at(row * vocabulary + i);
    if (!std::isnan(value)) all.push_back({static_cast<exec::TokenId>(i), value});
  }
  Logprobs out;
  out.chosen = -std::numeric_limits<double>::infinity();
  if (all.empty()) return out;
  const double largest = std::ranges::max(all, {}, &Logprob::value).value;
  double sum = 0;
  // An infinite logit has all of the probability: the difference of two infinities is 0 here.
  const auto below = [&](double value) { return value == largest ? 0 : value - largest; };
  for (const Logprob& item : all) sum += std::exp(below(item.value));
  const double log_sum = std::log(sum);
  for (Logprob& item : all) {
    item.value = below(item.value) - log_sum;
    if (item.id == chosen) out.chosen = item.value;
  }
  const auto kept = std::min<std::ptrdiff_t>(top, std::ssize(all));
  std::ranges::partial_sort(all, all.begin() + kept, [](const Logprob& a, const Logprob& b) {
    return a.value != b.value ? a.value > b.value : a.id < b.id;
  });
  out.top.assign(all.begin(), all.begin() + kept);
  return out;
}

}  // namespace lockstep::engine
