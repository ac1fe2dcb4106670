#include "base/near_names.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

// Letters to insert, delete or exchange to make `b` of `a`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t exchange = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({exchange, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> near_names(std::string_view wanted, std::span<const std::string> names,
                                    size_t most) {
  constexpr size_t kLongest = 256;  // nobody types more; keeps the work small
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

}  // namespace lockstep
