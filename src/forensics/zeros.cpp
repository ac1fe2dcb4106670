#include "forensics/zeros.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "forensics/origins.h"

namespace lockstep::forensics {
namespace {

constexpr int64_t kLeastRun = 4;    // columns; fewer can be zero for many reasons
constexpr double kZeroProof = 30;   // bits: what is likelier by 2^30 if nothing was written
constexpr double kManyZeros = 0.3;  // share of zeros from which they belong to the values

// Whether the name says that zeros are in order.
bool says_zero(std::string_view name) {
  for (const std::string_view word : {"mask", "prob", "moe", "exp", "relu", "hot", "pad", "bias"})
    if (name.find(word) != std::string_view::npos) return true;
  return false;
}

// Zeros at one checkpoint, the same columns in some of its rows.
struct Group {
  Range range;
  std::vector<size_t> rows;
};

class ZeroFinder {
 public:
  ZeroFinder(const Source& source, const std::vector<RowStats>& stats)
      : source_(source), stats_(stats), spans_(spans_of(source)) {
    for (size_t c = 0; c < source_.checkpoints.size(); ++c) index_[source_.checkpoints[c]] = c;
  }

  std::vector<Finding> run() {
    for (size_t c = 0; c < spans_.size(); ++c) {
      if (spans_[c].begin == spans_[c].end) continue;
      const std::string& name = source_.checkpoints[c];
      if (name.ends_with("attn_probs")) {
        probabilities(c);
        continue;
      }
      measure_density(c);
      whole_rows(c);
      if (!masks(name)) parts_of_rows(c);
    }
    return std::move(findings_);
  }

 private:
  int64_t rows_of(size_t checkpoint) const {
    return static_cast<int64_t>(spans_[checkpoint].end - spans_[checkpoint].begin);
  }
  bool is_zero(size_t row) const { return stats_[row].zeros == stats_[row].count; }

  std::optional<size_t> row_at(size_t checkpoint, int64_t position) const {
    const Span& span = spans_[checkpoint];
    const auto begin = source_.rows.begin() + static_cast<long>(span.begin);
    const auto end = source_.rows.begin() + static_cast<long>(span.end);
    const auto found = std::lower_bound(
        begin, end, position, [](const RowRef& ref, int64_t at) { return ref.position < at; });
    if (found == end || found->position != position) return std::nullopt;
    return static_cast<size_t>(found - source_.rows.begin());
  }

  // How many zeros the checkpoint has where it is not zero in a row.
  void measure_density(size_t checkpoint) {
    int64_t numbers = 0, zeros = 0;
    for (size_t i = spans_[checkpoint].begin; i < spans_[checkpoint].end; ++i) {
      if (is_zero(i)) continue;
      const int64_t run = run_of(i);
      numbers += stats_[i].count - run;
      zeros += stats_[i].zeros - run;
    }
    density_ = static_cast<double>(zeros + 1) / static_cast<double>(numbers + 2);
  }

  int64_t run_of(size_t row) const {
    const int64_t length = stats_[row].zero_run.end - stats_[row].zero_run.begin;
    return length >= kLeastRun ? length : 0;
  }

  // The checkpoint that a row's zeros come from, or nothing. Columns: where the same are zero
  // there.
  std::optional<std::string> inherited(size_t row, std::optional<Range> columns) const {
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
        if (is_zero(*source_row)) return true;
        return columns && there.count == stats_[row].count &&
               there.zero_run.begin == columns->begin && there.zero_run.end == columns->end;
      });
      if (all) return first;
    }
    return std::nullopt;
  }

  std::optional<size_t> find(const std::string& name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? std::nullopt : std::optional(found->second);
  }

  std::optional<size_t> stream_before(size_t checkpoint) const {
    while (checkpoint-- > 0) {
      const std::string_view leaf = leaf_of(source_.checkpoints[checkpoint]);
      if (leaf == "output" || leaf == "embedding") return checkpoint;
    }
    return std::nullopt;
  }

  void add(Kind kind, double score, const std::vector<Range>& ranges, size_t row,
           const std::string& evidence, bool from_before = false) {
    Finding finding{row, {kind, score, ranges, evidence, from_before}, 0, 0, 0};
    for (const Range& range : ranges) finding.numbers += range.end - range.begin;
    findings_.push_back(std::move(finding));
  }

  // Zeros that come from zeros are told as such; those that are left are returned.
  std::vector<size_t> without_inherited(const std::vector<size_t>& rows,
                                        std::optional<Range> columns) {
    std::vector<size_t> left;
    for (const size_t row : rows) {
      const std::optional<std::string> from = inherited(row, columns);
      if (!from) {
        left.push_back(row);
        continue;
      }
      add(Kind::kHonestZeros, 1, {columns.value_or(Range{0, stats_[row].count})}, row,
          fmt::format("zero as '{}' is, which it is computed from", *from), true);
    }
    return left;
  }

  void whole_rows(size_t checkpoint) {
    const std::string& name = source_.checkpoints[checkpoint];
    std::vector<size_t> rows;
    for (size_t i = spans_[checkpoint].begin; i < spans_[checkpoint].end; ++i)
      if (is_zero(i)) rows.push_back(i);
    const auto zero_rows = static_cast<int64_t>(rows.size());
    rows = without_inherited(rows, std::nullopt);
    if (rows.empty()) return;
    const int64_t all = rows_of(checkpoint), width = stats_[rows.front()].count;
    std::string evidence =
        zero_rows == all
            ? fmt::format("all {} numbers of {} of {} are zero", width,
                          all == 1 ? "the only row" : fmt::format("all {} rows", all), name)
            : fmt::format("all {} numbers are zero in {} of {} rows of {}", width, zero_rows, all,
                          name);
    Kind kind = Kind::kZeros;
    double score = 0.9;
    if (name == "embedding") {
      score = judge_embedding(rows, evidence);
      if (score == 0) kind = Kind::kHonestZeros;
    } else if (says_zero(name) || (zero_rows == all && origin_of(name) == nullptr)) {
      kind = Kind::kHonestZeros;
      evidence += "; whether they should be, the name does not tell";
    } else if (zero_rows == all) {
      // Few numbers can be zero by chance, and many of an activation that cuts off.
      if (width < kLeastRun || zero_rows * width < (reaches_zero(name) ? 4096 : 16)) return;
      score = 0.8;
      evidence += ": they were not computed or not written, unless the weights before are zero";
    } else {
      const double bits = -std::log2(density_) * static_cast<double>(width);
      if (bits * static_cast<double>(rows.size()) < kZeroProof || bits < kZeroProof / 3) return;
      if (density_ > kManyZeros || (reaches_zero(name) && width < kShortRow)) {
        kind = Kind::kHonestZeros;
        evidence += fmt::format("; {:.0f}% of the others are zero too", 100 * density_);
      } else {
        evidence += ", and the others are not: they were not computed or not written";
      }
    }
    if (kind == Kind::kHonestZeros) score = 0.5;
    for (const size_t row : rows) add(kind, score, {{0, stats_[row].count}}, row, evidence);
  }

  // How sure it is that zero embeddings are none of the model's; 0: they may be.
  double judge_embedding(const std::vector<size_t>& rows, std::string& evidence) const {
    const auto& tokens = source_.tokens;
    std::set<int32_t> zero, other;
    for (const size_t row : rows) {
      const auto at = static_cast<size_t>(source_.rows[row].position);
      if (at < tokens.size()) zero.insert(tokens[at]);
    }
    const Span& span = spans_[source_.rows[rows.front()].checkpoint];
    for (size_t i = span.begin; i < span.end; ++i) {
      const auto at = static_cast<size_t>(source_.rows[i].position);
      if (is_zero(i) || at >= tokens.size()) continue;
      other.insert(tokens[at]);
      if (!zero.contains(tokens[at])) continue;
      evidence += fmt::format("; the same token, {}, has numbers at position {}", tokens[at],
                              source_.rows[i].position);
      return 0.99;
    }
    const size_t different = zero.empty() ? rows.size() : zero.size();
    const size_t others = tokens.empty() ? span.end - span.begin - rows.size() : other.size();
    if (different >= 3 && different > others) {
      evidence += fmt::format(", for {} different tokens", different);
      return 0.9;
    }
    evidence +=
        "; tokens that were never trained have such rows in some models (without the model file "
        "nobody can tell)";
    return 0;
  }

  // Rows with the same columns zero, and numbers beside them.
  void parts_of_rows(size_t checkpoint) {
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
    for (auto& [key, group] : groups) judge(checkpoint, group);
  }

  void judge(size_t checkpoint, Group& group) {
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
    std::string evidence = fmt::format(
        "columns {} to {}{} are zero in {} of {}", group.range.begin, group.range.end - 1,
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
    for (const size_t row : rows)
      add(kind, kind == Kind::kZeros ? 0.9 : 0.5, ranges, row, evidence);
  }

  bool is_regular(size_t row, int64_t length) const {
    const int64_t zeros = stats_[row].zeros;
    if (length < 8 || zeros % length != 0 || zeros == length) return false;
    const std::vector<Range> ranges = ranges_like(row, length);
    return static_cast<int64_t>(ranges.size()) * length == zeros &&
           std::ranges::all_of(ranges, [&](const Range& r) { return r.end - r.begin == length; });
  }

  int digits_of(size_t index) const {
    Row row;
    source_.load(source_.rows[index], row);
    return row.digits;
  }

  // The runs of a row that are about as long: a part of every head, say.
  std::vector<Range> ranges_like(size_t index, int64_t length) const {
    Row row;
    source_.load(source_.rows[index], row);
    std::vector<Range> ranges;
    int64_t run = 0;
    for (int64_t i = 0; i <= row.count(); ++i) {
      if (i < row.count() && row.at(i) == 0) {
        ++run;
        continue;
      }
      if (run >= std::max(kLeastRun, length / 2)) ranges.push_back({i - run, i});
      run = 0;
    }
    return ranges;
  }

  // Probabilities of a head add up to 1.
  void probabilities(size_t checkpoint) {
    const std::string& name = source_.checkpoints[checkpoint];
    std::vector<std::pair<size_t, std::vector<Range>>> found;
    std::set<int64_t> heads;
    for (size_t i = spans_[checkpoint].begin; i < spans_[checkpoint].end; ++i) {
      if (stats_[i].zero_lines == 0) continue;
      Row row;
      source_.load(source_.rows[i], row);
      const int64_t width = row.count() / row.lines;
      std::vector<Range> ranges;
      for (int64_t line = 0; line < row.lines; ++line) {
        if (!line_is_zero(row, line)) continue;
        ranges.push_back({line * width, (line + 1) * width});
        heads.insert(line);
      }
      found.emplace_back(i, std::move(ranges));
    }
    for (const auto& [row, ranges] : found)
      add(Kind::kZeros, 0.95, joined(ranges), row,
          fmt::format("all probabilities of head{} {} are zero in {} of {} rows of {}; they must "
                      "add up to 1",
                      heads.size() > 1 ? "s" : "",
                      range_text(std::vector<int64_t>(heads.begin(), heads.end())), found.size(),
                      rows_of(checkpoint), name));
  }

  const Source& source_;
  const std::vector<RowStats>& stats_;
  const std::vector<Span> spans_;
  std::map<std::string, size_t, std::less<>> index_;  // of checkpoints
  double density_ = 0;                                // share of zeros among those
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> find_zeros(const Source& source, const std::vector<RowStats>& stats) {
  return ZeroFinder(source, stats).run();
}

}  // namespace lockstep::forensics
