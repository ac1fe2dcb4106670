// From findings in single rows to what is told: clusters, with the evidence that only several rows
// together give.
#include <algorithm>
#include <map>
#include <set>

#include "forensics/bits.h"
#include "forensics/scan.h"

namespace lockstep::forensics {
namespace {

// What the links of several freed rows say together.
std::string link_evidence(const Source& source, const std::vector<const Finding*>& findings) {
  std::map<uint64_t, int64_t> keys;  // second words
  std::vector<uint64_t> places;      // where links lead, in order of positions
  int64_t rows = 0;
  for (const Finding* finding : findings) {
    Row row;
    source.load(source.rows[finding->row], row);
    if (words_in(row) < 2) continue;
    ++rows;
    ++keys[word_at(row, 1)];
    if (!row.exact) continue;
    const uint64_t link = word_at(row, 0);
    if (region_of(link) == Region::kNone) continue;
    places.push_back(link % 16 == 0 ? link : unmask_link(link));
  }
  std::string text;
  const auto most = std::ranges::max_element(keys, {}, &std::pair<const uint64_t, int64_t>::second);
  if (most != keys.end() && most->second >= 2 && most->first != 0)
    text += fmt::format("; the second word, {:#x}, is the same in {} of {} rows{}", most->first,
                        most->second, rows,
                        region_of(most->first) == Region::kNone ? ", as the tcache's key is" : "");
  std::map<uint64_t, int64_t> strides;
  for (size_t i = 1; i < places.size(); ++i) ++strides[places[i] - places[i - 1]];
  const auto usual =
      std::ranges::max_element(strides, {}, &std::pair<const uint64_t, int64_t>::second);
  if (usual != strides.end() && usual->second >= 2 && usual->first != 0) {
    const auto stride = static_cast<int64_t>(usual->first);
    text += fmt::format("; links of successive rows lead {} bytes apart, a chunk each",
                        std::abs(stride));
  }
  return text;
}

std::string massive_evidence(const std::vector<const Finding*>& findings) {
  std::map<int64_t, int64_t> channels;
  for (const Finding* finding : findings) ++channels[finding->match.ranges.front().begin];
  const auto best =
      std::ranges::max_element(channels, {}, &std::pair<const int64_t, int64_t>::second);
  return fmt::format("; channel {} leads at {} of {} positions", best->first, best->second,
                     findings.size());
}

// Whether the evidence is of all rows, not of one.
bool speaks_for_all(Kind kind) {
  return kind == Kind::kMasked || kind == Kind::kZeros || kind == Kind::kHonestZeros;
}

Cluster cluster_of(const Source& source, const std::vector<RowStats>& stats,
                   const std::vector<const Finding*>& findings) {
  Cluster cluster;
  cluster.whole_rows = true;
  const Finding* best = findings.front();
  std::set<int64_t> positions;
  std::vector<Range> ranges;
  for (const Finding* finding : findings) {
    if (finding->match.score > best->match.score) best = finding;
    positions.insert(source.rows[finding->row].position);
    ranges.insert(ranges.end(), finding->match.ranges.begin(), finding->match.ranges.end());
    cluster.numbers += finding->numbers;
    cluster.whole_rows = cluster.whole_rows && finding->numbers == stats[finding->row].count;
    cluster.largest = std::max(cluster.largest, finding->largest);
    if (finding->smallest > 0)
      cluster.smallest =
          cluster.smallest == 0 ? finding->smallest : std::min(cluster.smallest, finding->smallest);
  }
  cluster.kind = best->match.kind;
  cluster.checkpoints = {source.checkpoints[source.rows[best->row].checkpoint]};
  cluster.inherited = best->match.inherited;
  cluster.positions.assign(positions.begin(), positions.end());
  cluster.values = joined(std::move(ranges));
  cluster.score = best->match.score;
  cluster.evidence = best->match.evidence;
  if (findings.size() > 1 && !speaks_for_all(cluster.kind))
    cluster.evidence =
        fmt::format("position {}: {}", source.rows[best->row].position, cluster.evidence);
  if (cluster.kind == Kind::kFreeList) cluster.evidence += link_evidence(source, findings);
  if (cluster.kind == Kind::kMassive) cluster.evidence += massive_evidence(findings);
  return cluster;
}

bool same_story(const Cluster& a, const Cluster& b) {
  if (a.kind != b.kind || a.inherited != b.inherited) return false;
  if (a.inherited || a.kind == Kind::kMasked || a.kind == Kind::kMassive) return true;
  return a.positions == b.positions && a.whole_rows == b.whole_rows &&
         (a.whole_rows || a.values == b.values);
}

void merge(Cluster& into, const Cluster& more) {
  into.checkpoints.insert(into.checkpoints.end(), more.checkpoints.begin(), more.checkpoints.end());
  std::vector<int64_t> positions;
  std::ranges::set_union(into.positions, more.positions, std::back_inserter(positions));
  into.positions = std::move(positions);
  into.values.insert(into.values.end(), more.values.begin(), more.values.end());
  into.values = joined(std::move(into.values));
  into.whole_rows = into.whole_rows && more.whole_rows;
  into.numbers += more.numbers;
  into.largest = std::max(into.largest, more.largest);
  if (more.smallest > 0)
    into.smallest = into.smallest == 0 ? more.smallest : std::min(into.smallest, more.smallest);
}

std::string joined_text(const std::vector<std::string>& parts, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(parts.size(), most); ++i) text += (i > 0 ? ", " : "") + parts[i];
  if (parts.size() > most) text += fmt::format(", {} more", parts.size() - most);
  return text;
}

}  // namespace

std::vector<Range> joined(std::vector<Range> ranges) {
  std::ranges::sort(ranges, {}, &Range::begin);
  std::vector<Range> out;
  for (const Range& range : ranges) {
    if (!out.empty() && range.begin <= out.back().end)
      out.back().end = std::max(out.back().end, range.end);
    else
      out.push_back(range);
  }
  return out;
}

std::vector<Cluster> gather(const Source& source, const std::vector<RowStats>& stats,
                            const std::vector<Finding>& findings) {
  // Garbage first, what was inherited after its origin, then in order of execution. Zeros in
  // different columns are different findings.
  std::map<std::tuple<bool, bool, size_t, Kind, int64_t, int64_t>, std::vector<const Finding*>>
      groups;
  for (const Finding& finding : findings) {
    const Match& match = finding.match;
    const bool zeros = speaks_for_all(match.kind) && match.kind != Kind::kMasked;
    const Range range =
        zeros && finding.numbers != stats[finding.row].count ? match.ranges.front() : Range{};
    groups[{!info(match.kind).garbage, match.inherited, source.rows[finding.row].checkpoint,
            match.kind, range.begin, range.end}]
        .push_back(&finding);
  }
  std::vector<Cluster> clusters;
  for (const auto& [key, group] : groups) {
    const Cluster cluster = cluster_of(source, stats, group);
    const auto same = std::ranges::find_if(
        clusters, [&](const Cluster& one) { return same_story(one, cluster); });
    if (same != clusters.end())
      merge(*same, cluster);
    else
      clusters.push_back(cluster);
  }
  return clusters;
}

std::string range_text(const std::vector<int64_t>& sorted, size_t most) {
  std::vector<Range> ranges;
  for (const int64_t number : sorted) {
    if (!ranges.empty() && ranges.back().end == number)
      ++ranges.back().end;
    else
      ranges.push_back({number, number + 1});
  }
  return range_text(ranges, most);
}

std::string range_text(const std::vector<Range>& ranges, size_t most) {
  std::vector<std::string> parts;
  for (const Range& range : ranges)
    parts.push_back(range.end - range.begin == 1
                        ? fmt::format("{}", range.begin)
                        : fmt::format("{}-{}", range.begin, range.end - 1));
  return joined_text(parts, most);
}

}  // namespace lockstep::forensics
