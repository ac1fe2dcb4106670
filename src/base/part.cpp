#include "base/part.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace lockstep {

std::vector<int64_t> deal(std::span<const double> work, int64_t parts) {
  std::vector<int64_t> out(work.size());
  std::iota(out.begin(), out.end(), int64_t{1});
  if (parts >= std::ssize(work)) return out;
  const double all = std::accumulate(work.begin(), work.end(), 0.0);
  double before = 0;
  // An item goes to the part that has its middle.
  for (size_t i = 0; i < work.size(); ++i) {
    const double place = (before + work[i] / 2) / all;
    out[i] =
        std::clamp<int64_t>(static_cast<int64_t>(place * static_cast<double>(parts)) + 1, 1, parts);
    before += work[i];
  }
  return out;
}

Result<void> check_parts(std::span<const Part> parts, std::span<const std::string> sources,
                         bool partial) {
  LS_CHECK(!parts.empty() && parts.size() == sources.size());
  std::map<int64_t, size_t> seen;  // which file has a part
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [index, of] = parts[i];
    if (of != parts[0].of)
      return error("{}: part {} of {}, expected one of {} parts as {} is", printable(sources[i]),
                   index, of, parts[0].of, printable(sources[0]));
    const auto [at, is_new] = seen.emplace(index, i);
    if (!is_new)
      return error("{}: part {} of {}, which {} is too", printable(sources[i]), index, of,
                   printable(sources[at->second]));
  }
  for (int64_t k = 1; k <= parts[0].of && !partial; ++k)
    if (!seen.contains(k)) return error("part {} of {} is missing", k, parts[0].of);
  return {};
}

}  // namespace lockstep
