#include "forensics/scan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/parallel.h"
#include "base/progress.h"
#include "forensics/bits.h"
#include "forensics/zeros.h"

namespace lockstep::forensics {
namespace {

constexpr int64_t kPart = 256;  // rows between two steps of the progress bar
constexpr double kMassiveRatio = 100;

// Calls body(row) for rows on all cores, with a progress bar.
void for_rows(const std::vector<size_t>& rows, const std::string& label,
              const std::function<void(size_t)>& body) {
  const auto count = static_cast<int64_t>(rows.size());
  Progress progress(label, count, "rows");
  for (int64_t at = 0; at < count; at += kPart) {
    const int64_t part = std::min(kPart, count - at);
    parallel_for(part, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(rows[static_cast<size_t>(at + i)]);
    });
    progress.advance(part);
  }
}

double median_of_nonzero(std::vector<double> values) {
  std::erase(values, 0.0);
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Checkpoints that depend on nothing but the token at the position.
bool depends_on_token_only(const std::string& name) {
  return name == "embedding" || name == "blk.0.attn_norm" || name == "blk.0.q" ||
         name == "blk.0.k" || name == "blk.0.v";
}

class Scanner {
 public:
  explicit Scanner(const Source& source)
      : source_(source), spans_(spans_of(source)), stats_(source.rows.size()) {}

  Report run() {
    std::vector<size_t> all(source_.rows.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    for_rows(all, "reading", [&](size_t i) {
      Row row;
      source_.load(source_.rows[i], row);
      stats_[i] = measure(row);
    });
    for (const Span& span : spans_) {
      std::vector<double> medians;
      for (size_t i = span.begin; i < span.end; ++i) medians.push_back(stats_[i].median);
      scales_.push_back(median_of_nonzero(std::move(medians)));
    }
    judge_short_rows();
    find_copies();
    examine();
    widen_free_lists();
    find_massive();
    for (Finding& finding : find_zeros(source_, stats_)) findings_.push_back(std::move(finding));
    return report();
  }

 private:
  const std::string& checkpoint_of(size_t row) const {
    return source_.checkpoints[source_.rows[row].checkpoint];
  }

  void add(size_t row, Match match, const Row* loaded) {
    Finding finding{row, std::move(match), 0, 0, 0};
    for (const Range& range : finding.match.ranges) {
      finding.numbers += range.end - range.begin;
      for (int64_t i = range.begin; loaded != nullptr && i < range.end; ++i) {
        const double magnitude = std::abs(loaded->at(i));
        if (!std::isfinite(magnitude) || magnitude == 0) continue;
        finding.largest = std::max(finding.largest, magnitude);
        finding.smallest =
            finding.smallest == 0 ? magnitude : std::min(finding.smallest, magnitude);
      }
    }
    if (loaded == nullptr) {
      finding.largest = stats_[row].largest;
      finding.smallest = stats_[row].median;
    }
    const std::lock_guard lock(mutex_);
    findings_.push_back(std::move(finding));
  }

  // Equal rows are in order where the tokens that led to them are.
  bool may_be_equal(size_t earlier, size_t later) const {
    const std::string& name = checkpoint_of(later);
    const auto p = static_cast<size_t>(source_.rows[earlier].position);
    const auto q = static_cast<size_t>(source_.rows[later].position);
    const auto& tokens = source_.tokens;
    if (p == q) return true;  // the same line twice in a log
    if (q >= tokens.size()) return depends_on_token_only(name);
    if (tokens[p] != tokens[q]) return false;
    if (depends_on_token_only(name)) return true;
    return std::all_of(tokens.begin(), tokens.begin() + static_cast<long>(q),
                       [&](int32_t token) { return token == tokens[q]; });
  }

  bool same_bytes(size_t a, size_t b) const {
    Row first, second;
    source_.load(source_.rows[a], first);
    source_.load(source_.rows[b], second);
    return first.bytes == second.bytes;
  }

  void find_copies() {
    for (const Span& span : spans_) {
      std::unordered_map<uint64_t, std::vector<size_t>> same;
      for (size_t i = span.begin; i < span.end; ++i)
        if (stats_[i].varied) same[stats_[i].hash].push_back(i);
      for (auto& [hash, rows] : same) {
        const size_t first = rows.front();
        std::erase_if(rows, [&](size_t row) {
          return row == first || may_be_equal(first, row) || !same_bytes(first, row);
        });
        for (const size_t row : rows) add_copy(first, row, rows.size() >= 3);
      }
    }
  }

  void add_copy(size_t first, size_t row, bool many) {
    const int64_t p = source_.rows[first].position, q = source_.rows[row].position;
    const auto& tokens = source_.tokens;
    std::string evidence = fmt::format("all {} numbers of position {} are those of position {}",
                                       stats_[row].count, q, p);
    if (static_cast<size_t>(q) < tokens.size())
      evidence += tokens[static_cast<size_t>(p)] != tokens[static_cast<size_t>(q)]
                      ? fmt::format(", though the tokens differ ({} and {})",
                                    tokens[static_cast<size_t>(p)], tokens[static_cast<size_t>(q)])
                      : ", though what led to them differs";
    add(row,
        {many ? Kind::kRepeatedRows : Kind::kStaleRow,
         many ? 0.97 : 0.98,
         {{0, stats_[row].count}},
         std::move(evidence)},
        nullptr);
    copied_.resize(stats_.size());
    copied_[row] = true;
  }

  // Rows too short to prove a format alone, those of a checkpoint together.
  void judge_short_rows() {
    for (const Span& span : spans_) {
      FormatEvidence evidence;
      std::vector<FormatBits> bits;
      std::vector<size_t> rows;
      for (size_t i = span.begin; i < span.end; ++i) {
        if (stats_[i].count >= kShortRow) continue;
        Row row;
        source_.load(source_.rows[i], row);
        bits.push_back(evidence.add(row));
        rows.push_back(i);
      }
      const auto formats = formats_of_rows(bits);
      for (size_t i = 0; i < rows.size(); ++i) {
        stats_[rows[i]].format = formats[i];
        stats_[rows[i]].closer_look = stats_[rows[i]].closer_look || formats[i].has_value();
      }
    }
  }

  // What the checkpoints before had at the same position.
  void set_earlier(size_t index, Exhibit& exhibit) const {
    const RowRef& ref = source_.rows[index];
    for (size_t c = 0; c < ref.checkpoint; ++c) {
      const auto begin = source_.rows.begin() + static_cast<long>(spans_[c].begin);
      const auto end = source_.rows.begin() + static_cast<long>(spans_[c].end);
      const auto found = std::lower_bound(
          begin, end, ref.position, [](const RowRef& r, int64_t at) { return r.position < at; });
      if (found == end || found->position != ref.position) continue;
      const RowStats& stats = stats_[static_cast<size_t>(found - source_.rows.begin())];
      if (stats.largest > exhibit.earlier_largest) {
        exhibit.earlier_largest = stats.largest;
        exhibit.earlier_checkpoint = source_.checkpoints[c];
      }
      const int64_t bad = stats.nans + stats.plus_infinities +
                          (masks(source_.checkpoints[c]) ? 0 : stats.minus_infinities);
      if (bad > 0 && !exhibit.earlier_non_finite) {
        exhibit.earlier_non_finite = true;
        exhibit.earlier_non_finite_checkpoint = source_.checkpoints[c];
      }
    }
  }

  void examine() {
    copied_.resize(stats_.size());
    std::vector<size_t> chosen;
    for (size_t i = 0; i < stats_.size(); ++i) {
      const double scale = scales_[source_.rows[i].checkpoint];
      if (!copied_[i] && (stats_[i].closer_look || is_huge(stats_[i].largest, scale)))
        chosen.push_back(i);
    }
    for_rows(chosen, "examining", [&](size_t i) {
      Row row;
      source_.load(source_.rows[i], row);
      const double scale = scales_[source_.rows[i].checkpoint];
      Exhibit exhibit{checkpoint_of(i),
                      source_.rows[i].position,
                      row,
                      stats_[i],
                      scale,
                      stats_[i].format,
                      {},
                      0,
                      {},
                      false,
                      {}};
      exhibit.odd = find_odd(checkpoint_of(i), row, stats_[i], scale);
      set_earlier(i, exhibit);
      for (Match& match : explain(std::move(exhibit))) add(i, std::move(match), &row);
    });
  }

  // The second word of a freed row may pass for numbers; where several rows have the same one, it
  // is the allocator's all the same.
  void widen_free_lists() {
    std::map<std::pair<size_t, uint64_t>, std::vector<Finding*>> by_word;
    for (Finding& finding : findings_) {
      if (finding.match.kind != Kind::kFreeList) continue;
      Row row;
      source_.load(source_.rows[finding.row], row);
      if (words_in(row) < 2 || word_at(row, 1) == 0) continue;
      by_word[{source_.rows[finding.row].checkpoint, word_at(row, 1)}].push_back(&finding);
    }
    for (const auto& [key, group] : by_word) {
      if (group.size() < 2) continue;
      for (Finding* finding : group) {
        Row row;
        source_.load(source_.rows[finding->row], row);
        const int64_t word = 8 / size_bytes(row.dtype);
        Range& head = finding->match.ranges.front();
        if (head.end != word) continue;
        head.end += word;
        finding->numbers += word;
      }
    }
  }

  // Not garbage, but what one may take for it.
  void find_massive() {
    for (size_t i = 0; i < stats_.size(); ++i) {
      const std::string& name = checkpoint_of(i);
      const RowStats& stats = stats_[i];
      const double scale = scales_[source_.rows[i].checkpoint];
      const int64_t masked = stats.minus_infinities + stats.mask_values;
      if (masks(name) && masked > 0 && stats.nans + stats.plus_infinities == 0)
        add(i,
            {Kind::kMasked,
             1,
             {{0, masked}},
             fmt::format(
                 "{} in attention scores is a mask, no garbage",
                 stats.minus_infinities > 0 ? "minus infinity" : fmt::format("{:g}", stats.min))},
            nullptr);
      if (stats.closer_look || copied_[i] || name.ends_with("logits") || masks(name) ||
          reaches_zero(name) || scale == 0 || stats.largest < kMassiveRatio * scale ||
          stats.count < 64 || is_huge(stats.largest, scale))
        continue;
      add(i,
          {Kind::kMassive,
           1,
           {{stats.largest_at, stats.largest_at + 1}},
           fmt::format("channel {} is {:.3g}, {:.0f} times the median", stats.largest_at,
                       stats.largest, stats.largest / scale)},
          nullptr);
    }
  }

  Report report() {
    Report out;
    out.path = source_.path;
    out.engine = source_.engine;
    out.model = source_.model;
    out.problems = source_.problems;
    out.notes = source_.notes;
    out.broken_off = source_.broken_off;
    std::ranges::stable_sort(findings_, {}, &Finding::row);
    out.garbage.resize(stats_.size());
    for (const Finding& finding : findings_)
      if (info(finding.match.kind).garbage) out.garbage[finding.row] += finding.numbers;
    for (size_t i = 0; i < stats_.size(); ++i) {
      out.garbage[i] = std::min(out.garbage[i], stats_[i].count);
      out.numbers += stats_[i].count;
      out.garbage_numbers += out.garbage[i];
    }
    for (size_t c = 0; c < spans_.size(); ++c) out.checkpoints.push_back(total(c, out.garbage));
    out.clusters = gather(source_, stats_, findings_);
    out.rows = std::move(stats_);
    return out;
  }

  CheckpointStats total(size_t checkpoint, const std::vector<int64_t>& garbage) const {
    CheckpointStats out;
    out.checkpoint = source_.checkpoints[checkpoint];
    RowStats& sum = out.total;
    double squares = 0, mean = 0;
    for (size_t i = spans_[checkpoint].begin; i < spans_[checkpoint].end; ++i) {
      const RowStats& row = stats_[i];
      ++out.rows;
      out.garbage += garbage[i];
      sum.count += row.count;
      sum.zeros += row.zeros;
      sum.denormals += row.denormals;
      sum.nans += row.nans;
      sum.plus_infinities += row.plus_infinities;
      sum.minus_infinities += row.minus_infinities;
      sum.largest = std::max(sum.largest, row.largest);
      if (row.finite == 0) continue;
      sum.min = sum.finite == 0 ? row.min : std::min(sum.min, row.min);
      sum.max = sum.finite == 0 ? row.max : std::max(sum.max, row.max);
      // Chan's way to join two means and sums of squares.
      const auto a = static_cast<double>(sum.finite), b = static_cast<double>(row.finite);
      const double apart = row.mean - mean;
      squares += row.deviation * row.deviation * b + apart * apart * a * b / (a + b);
      mean += apart * b / (a + b);
      sum.finite += row.finite;
    }
    sum.mean = mean;
    sum.median = scales_[checkpoint];
    if (sum.finite > 0) sum.deviation = std::sqrt(squares / static_cast<double>(sum.finite));
    return out;
  }

  const Source& source_;
  const std::vector<Span> spans_;  // by checkpoint
  std::vector<RowStats> stats_;    // by row
  std::vector<double> scales_;     // by checkpoint
  std::vector<uint8_t> copied_;    // by row
  std::mutex mutex_;
  std::vector<Finding> findings_;
};

}  // namespace

Report scan(const Source& source) {
  return Scanner(source).run();
}

}  // namespace lockstep::forensics
