#include <algorithm>

#include "quality/recipe.h"

namespace lockstep::quality {
namespace {

// From one candidate to a larger one that is better, and what a byte of that gains.
struct Upgrade {
  size_t item = 0;
  size_t to = 0;
  int64_t bytes = 0;
  double gain = 0;

  double per_byte() const { return gain / static_cast<double>(bytes); }
};

size_t smallest(const Item& item) {
  const auto order = [](const Candidate& a, const Candidate& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.kl < b.kl;
  };
  return static_cast<size_t>(std::ranges::min_element(item.candidates, order) -
                             item.candidates.begin());
}

// The best next step up from `from`: the one with the steepest gain, as on a convex hull.
std::vector<Upgrade> upgrades_of(const Item& item, size_t index) {
  std::vector<Upgrade> out;
  for (size_t from = smallest(item);;) {
    Upgrade best;
    for (size_t to = 0; to < item.candidates.size(); ++to) {
      const int64_t bytes = item.candidates[to].bytes - item.candidates[from].bytes;
      const double gain = item.candidates[from].kl - item.candidates[to].kl;
      if (bytes <= 0 || gain <= 0) continue;
      const Upgrade next{index, to, bytes, gain};
      if (best.bytes == 0 || next.per_byte() > best.per_byte()) best = next;
    }
    if (best.bytes == 0) return out;
    out.push_back(best);
    from = best.to;
  }
}

}  // namespace

Result<std::vector<size_t>> choose_candidates(const std::vector<Item>& items, int64_t bytes) {
  std::vector<size_t> chosen;
  int64_t left = bytes;
  for (const Item& item : items) {
    chosen.push_back(smallest(item));
    left -= item.candidates[chosen.back()].bytes;
  }
  if (left < 0)
    return error("{} bytes are too few: the matrices have {} in their smallest formats", bytes,
                 bytes - left);
  std::vector<Upgrade> upgrades;
  for (size_t i = 0; i < items.size(); ++i)
    for (const Upgrade& upgrade : upgrades_of(items[i], i)) upgrades.push_back(upgrade);
  // Of one item they come in their order: each gains less a byte than the one before.
  std::ranges::stable_sort(upgrades, std::ranges::greater(), &Upgrade::per_byte);
  std::vector<bool> stopped(items.size());
  for (const Upgrade& upgrade : upgrades) {
    if (stopped[upgrade.item]) continue;
    if (upgrade.bytes > left) {
      stopped[upgrade.item] = true;
      continue;
    }
    chosen[upgrade.item] = upgrade.to;
    left -= upgrade.bytes;
  }
  // What is left may do for a step that is no part of a hull.
  while (true) {
    Upgrade best;
    for (size_t i = 0; i < items.size(); ++i) {
      const Candidate& now = items[i].candidates[chosen[i]];
      for (size_t to = 0; to < items[i].candidates.size(); ++to) {
        const Candidate& other = items[i].candidates[to];
        const double gain = now.kl - other.kl;
        if (gain > best.gain && other.bytes - now.bytes <= left)
          best = {i, to, other.bytes - now.bytes, gain};
      }
    }
    if (best.gain <= 0) return chosen;
    chosen[best.item] = best.to;
    left -= best.bytes;
  }
}

}  // namespace lockstep::quality
