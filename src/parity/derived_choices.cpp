#include "parity/derived_choices.h"

#include <algorithm>

namespace lockstep::parity {

Runs united(Runs a, const Runs& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::ranges::sort(a);
  Runs out;
  for (const auto& [first, last] : a)
    if (out.empty() || first > out.back().second + 1)
      out.emplace_back(first, last);
    else
      out.back().second = std::max(out.back().second, last);
  return out;
}

int64_t count(const Runs& runs) {
  int64_t out = 0;
  for (const auto& [first, last] : runs) out += last - first + 1;
  return out;
}

int64_t DerivedChoices::rows() const {
  int64_t out = 0;
  for (const auto& [name, of] : by_checkpoint) out += count(of.all);
  return out;
}

int64_t DerivedChoices::open() const {
  int64_t out = 0;
  for (const auto& [name, of] : by_checkpoint) out += count(of.open);
  return out;
}

}  // namespace lockstep::parity
