#include <algorithm>
#include <cmath>
#include <map>

#include "forensics/zero_finder.h"

namespace lockstep::forensics {

void ZeroFinder::parts_of_rows(size_t checkpoint) {
  std::map<std::pair<int64_t, int64_t>, Group> groups;
  for (size_t i = spans_[checkpoint].begin; i < spans_[checkpoint].end; ++i) {
    const Range run = stats_[i].zero_run;
    const int64_t beside = stats_[i].finite - stats_[i].zeros;
    if (is_zero(i) || run_of(i) == 0 || beside < std::clamp<int64_t>(stats_[i].count / 3, 3, 8))
      continue;
    Group& group = groups[{run.begin, run.end}];
    group.range = run;
    group.rows.push_back(i);
  }
  for (const auto& [key, group] : groups) judge(checkpoint, group);
}

void ZeroFinder::judge(size_t checkpoint, const Group& group) {
  const std::string& name = source_.checkpoints[checkpoint];
  const RowStats& first = stats_[group.rows.front()];
  const int64_t length = group.range.end - group.range.begin, all = rows_of(checkpoint);
  const auto group_rows = static_cast<int64_t>(group.rows.size());
  // Where all zeros of a row are in runs of one length, none of them is scattered.
  const bool regular = is_regular(group.rows.front(), length);
  const int64_t in_runs = regular ? first.zeros : length;
  // Rows differ in how many zeros they have: the densest counts.
  double density = regular ? 0 : density_;
  for (const size_t row : group.rows)
    density = std::max(density, static_cast<double>(stats_[row].zeros - in_runs + 1) /
                                    static_cast<double>(stats_[row].count - in_runs + 2));
  const bool to_end = group.range.end == first.count, from_start = group.range.begin == 0;
  // The few columns of a log do not prove it in one row; channels that are dead in all rows are
  // seldom the first or the last ones.
  const bool together = first.count < kShortRow && (to_end || from_start) && !reaches_zero(name);
  const double bits =
      -std::log2(density) * static_cast<double>(in_runs * (together ? group_rows : 1)) -
      std::log2(static_cast<double>(first.count));
  if (bits < kZeroProof) return;
  const std::vector<size_t> rows = without_inherited(group.rows, group.range);
  if (rows.empty()) return;
  const std::vector<Range> ranges = ranges_like(rows.front(), length);
  std::string evidence =
      fmt::format("columns {} to {}{} are zero in {} of {}", group.range.begin, group.range.end - 1,
                  ranges.size() > 1 ? fmt::format(" and {} more ranges", ranges.size() - 1) : "",
                  group_rows == all ? (all == 1 ? "the only row" : fmt::format("all {} rows", all))
                                    : fmt::format("{} of {} rows", group_rows, all),
                  name);
  if (from_start && length == 4 && digits_of(rows.front()) < Row{}.digits)
    evidence +=
        "; freed memory has two 8-byte links there, which print as zeros in a log without "
        "exponents";
  if (ranges.size() == 1 && to_end)
    evidence += fmt::format(", as if only the first {} were written", group.range.begin);
  Kind kind = Kind::kZeros;
  if (name.ends_with("logits") && to_end && group_rows == all && first.count % 8 == 0 &&
      length <= std::max<int64_t>(64, first.count / 64)) {
    kind = Kind::kHonestZeros;
    evidence = fmt::format(
        "columns {} to {} are zero in all rows of {}: a vocabulary padded to {} has such, and so "
        "has a kernel that leaves out the last columns",
        group.range.begin, group.range.end - 1, name, first.count);
  } else if (density > kManyZeros || says_zero(name)) {
    kind = Kind::kHonestZeros;
    evidence += fmt::format("; {:.0f}% of the others are zero too", 100 * density);
  } else if (length < 8 && group_rows == all && !to_end && !from_start) {
    kind = Kind::kHonestZeros;
    evidence += "; channels that the model does not use are";
  }
  for (const size_t row : rows) add(kind, kind == Kind::kZeros ? 0.9 : 0.5, ranges, row, evidence);
}

bool ZeroFinder::is_regular(size_t row, int64_t length) const {
  const int64_t zeros = stats_[row].zeros;
  if (length < 8 || zeros % length != 0 || zeros == length) return false;
  const std::vector<Range> ranges = ranges_like(row, length);
  return static_cast<int64_t>(ranges.size()) * length == zeros &&
         std::ranges::all_of(ranges, [&](const Range& r) { return r.end - r.begin == length; });
}

int ZeroFinder::digits_of(size_t index) const {
  Row row;
  source_.load(source_.rows[index], row);
  return row.digits;
}

std::vector<Range> ZeroFinder::ranges_like(size_t index, int64_t length) const {
  Row row;
  source_.load(source_.rows[index], row);
  std::vector<Range> ranges;
  int64_t run = 0;
  for (int64_t i = 0; i <= row.count(); ++i) {
    if (i < row.count() && row.at(i) == 0) {
      ++run;
      continue;
    }
    if (run >= std::max(kLeastZeroRun, length / 2)) ranges.push_back({i - run, i});
    run = 0;
  }
  return ranges;
}

}  // namespace lockstep::forensics
