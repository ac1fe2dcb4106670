#include "forensics/zero_origins.h"

#include <algorithm>

#include "forensics/origins.h"

namespace lockstep::forensics {

ZeroOrigins::ZeroOrigins(const Source& source, const std::vector<RowStats>& stats)
    : source_(source), stats_(stats), spans_(spans_of(source)) {
  for (size_t c = 0; c < source_.checkpoints.size(); ++c) index_[source_.checkpoints[c]] = c;
}

std::optional<std::string> ZeroOrigins::of(size_t row, std::optional<Range> columns) const {
  const RowRef& ref = source_.rows[row];
  const std::string& name = source_.checkpoints[ref.checkpoint];
  const Origin* origin = origin_of(name);
  if (origin == nullptr || (origin->leaf == "attn_mix" && ref.position > 0)) return std::nullopt;
  const std::string prefix = name.substr(0, name.size() - leaf_of(name).size());
  for (const auto& group : origin->groups) {
    std::string first;
    const bool all = std::ranges::all_of(group, [&](std::string_view leaf) {
      const std::optional<size_t> from =
          leaf == "stream" ? stream_before(ref.checkpoint) : find(prefix + std::string(leaf));
      const auto source_row = from ? row_at(*from, ref.position) : std::nullopt;
      if (!source_row) return false;
      if (first.empty()) first = source_.checkpoints[*from];
      const RowStats& there = stats_[*source_row];
      if (there.zeros == there.count) return true;
      return columns && there.count == stats_[row].count &&
             there.zero_run.begin == columns->begin && there.zero_run.end == columns->end;
    });
    if (all) return first;
  }
  return std::nullopt;
}

std::optional<size_t> ZeroOrigins::row_at(size_t checkpoint, int64_t position) const {
  const Span& span = spans_[checkpoint];
  const auto begin = source_.rows.begin() + static_cast<long>(span.begin);
  const auto end = source_.rows.begin() + static_cast<long>(span.end);
  const auto found = std::lower_bound(
      begin, end, position, [](const RowRef& ref, int64_t at) { return ref.position < at; });
  if (found == end || found->position != position) return std::nullopt;
  return static_cast<size_t>(found - source_.rows.begin());
}

std::optional<size_t> ZeroOrigins::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<size_t> ZeroOrigins::stream_before(size_t checkpoint) const {
  while (checkpoint-- > 0) {
    const std::string_view leaf = leaf_of(source_.checkpoints[checkpoint]);
    if (leaf == "output" || leaf == "embedding") return checkpoint;
  }
  return std::nullopt;
}

}  // namespace lockstep::forensics
