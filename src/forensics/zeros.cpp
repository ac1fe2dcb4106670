#include "forensics/zeros.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "forensics/origins.h"
#include "forensics/zero_finder.h"

namespace lockstep::forensics {

bool says_zero(std::string_view name) {
  for (const std::string_view word : {"mask", "prob", "moe", "exp", "relu", "hot", "pad", "bias"})
    if (name.find(word) != std::string_view::npos) return true;
  return false;
}

std::vector<Finding> ZeroFinder::run() {
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

void ZeroFinder::measure_density(size_t checkpoint) {
  int64_t numbers = 0, zeros = 0;
  for (size_t i = spans_[checkpoint].begin; i < spans_[checkpoint].end; ++i) {
    if (is_zero(i)) continue;
    const int64_t run = run_of(i);
    numbers += stats_[i].count - run;
    zeros += stats_[i].zeros - run;
  }
  density_ = static_cast<double>(zeros + 1) / static_cast<double>(numbers + 2);
}

int64_t ZeroFinder::run_of(size_t row) const {
  const int64_t length = stats_[row].zero_run.end - stats_[row].zero_run.begin;
  return length >= kLeastZeroRun ? length : 0;
}

void ZeroFinder::add(Kind kind, double score, const std::vector<Range>& ranges, size_t row,
                     const std::string& evidence, bool from_before) {
  Finding finding{row, {kind, score, ranges, evidence, from_before}, 0, 0, 0};
  for (const Range& range : ranges) finding.numbers += range.end - range.begin;
  findings_.push_back(std::move(finding));
}

std::vector<size_t> ZeroFinder::without_inherited(const std::vector<size_t>& rows,
                                                  std::optional<Range> columns) {
  std::vector<size_t> left;
  for (const size_t row : rows) {
    const std::optional<std::string> from = origins_.of(row, columns);
    if (!from) {
      left.push_back(row);
      continue;
    }
    add(Kind::kHonestZeros, 1, {columns.value_or(Range{0, stats_[row].count})}, row,
        fmt::format("zero as '{}' is, which it is computed from", *from), true);
  }
  return left;
}

void ZeroFinder::whole_rows(size_t checkpoint) {
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
    if (width < kLeastZeroRun || zero_rows * width < (reaches_zero(name) ? 4096 : 16)) return;
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

double ZeroFinder::judge_embedding(const std::vector<size_t>& rows, std::string& evidence) const {
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

void ZeroFinder::probabilities(size_t checkpoint) {
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

std::vector<Finding> find_zeros(const Source& source, const std::vector<RowStats>& stats) {
  return ZeroFinder(source, stats).run();
}

}  // namespace lockstep::forensics
