#include "base/part.h"

#include <map>

#include "base/check.h"
#include "base/text.h"

namespace lockstep {

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
