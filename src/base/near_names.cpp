#include "base/near_names.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

constexpr size_t kLongest = 256;  // nobody types more; keeps the work small

// Letters to insert, delete, exchange, or swap with their neighbour, to make `b` of `a`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before;  // the row before the last
  std::vector<size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t> row(b.size() + 1);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), row[j - 1] + 1, last[j] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = std::exchange(last, std::move(row));
  }
  return last.back();
}

}  // namespace

std::vector<std::string> near_names(std::string_view wanted, std::span<const std::string> names,
                                    size_t most) {
  if (wanted.empty() || wanted.size() > kLongest) return {};
  std::vector<std::pair<size_t, const std::string*>> found;
  for (const std::string& name : names) {
    if (name.size() > kLongest) continue;
    const size_t distance = edit_distance(wanted, name);
    const bool contained = name.find(wanted) != std::string::npos;
    if (contained || distance <= std::max<size_t>(1, wanted.size() / 3))
      found.emplace_back(distance, &name);
  }
  std::ranges::stable_sort(found, {}, [](const auto& pair) { return pair.first; });
  std::vector<std::string> result;
  for (size_t i = 0; i < std::min(most, found.size()); ++i) result.push_back(*found[i].second);
  return result;
}

std::vector<std::string> nearest_names(std::string_view wanted,
                                       std::span<const std::string> names) {
  constexpr size_t kMost = 3;
  if (wanted.size() < 3 || wanted.size() > kLongest) return {};
  std::vector<std::string> result;
  for (const std::string& name : names)
    if (name.starts_with(wanted) && result.size() < kMost) result.push_back(name);
  if (!result.empty()) return result;
  size_t least = (wanted.size() + 1) / 3;
  for (const std::string& name : names) {
    if (name.size() > kLongest) continue;
    const size_t distance = edit_distance(wanted, name);
    if (distance > least) continue;
    if (distance < least) result.clear();
    least = distance;
    if (result.size() < kMost) result.push_back(name);
  }
  return result;
}

}  // namespace lockstep
