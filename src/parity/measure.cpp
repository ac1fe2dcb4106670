#include "parity/measure.h"

#include <algorithm>
#include <span>

#include "base/parallel.h"
#include "base/progress.h"
#include "parity/align_experts.h"
#include "parity/conclude.h"

namespace lockstep::parity {
namespace {

// A trace may be far larger than memory and lies on the disk step by step, so it is gone through in
// groups of neighbouring positions, and within a group checkpoint by checkpoint. A group is whole
// steps of about this size where they are small; of a long step (a prompt) a few rows of each
// checkpoint, which lie side by side.
constexpr int64_t kGroupBytes = 64 << 20;
constexpr size_t kGroupPositions = 32;
// Pages that were read and not yet given back.
constexpr int64_t kTouchedBytes = 256 << 20;

int64_t row_bytes(const trace::Trace& trace) {
  int64_t bytes = 0;
  for (const trace::CheckpointInfo& info : trace.manifest().checkpoints)
    bytes += info.width * size_bytes(info.dtype);
  return bytes;
}

std::vector<std::span<const int64_t>> groups_of(const Traces& traces, const Scope& scope) {
  const int64_t bytes =
      std::max<int64_t>(1, row_bytes(traces.reference) + row_bytes(traces.suspect));
  const auto least = static_cast<size_t>(std::max<int64_t>(1, kGroupBytes / bytes));
  const size_t most = std::max(least, kGroupPositions);
  const auto begins_step = [](const trace::Trace& trace, int64_t position) {
    const auto& steps = trace.manifest().steps;
    return std::ranges::binary_search(steps, position, {}, &trace::StepInfo::first_position);
  };
  const std::span<const int64_t> all = scope.compared;
  std::vector<std::span<const int64_t>> groups;
  size_t first = 0;
  for (size_t i = 1; i <= all.size(); ++i) {
    const bool ends = i == all.size() || i - first >= most ||
                      (i - first >= least && begins_step(traces.reference, all[i]) &&
                       begins_step(traces.suspect, all[i]));
    if (!ends) continue;
    groups.push_back(all.subspan(first, i - first));
    first = i;
  }
  return groups;
}

// A checkpoint at a position.
struct Row {
  CheckpointResult* result;
  int64_t position;
  std::optional<Metrics> metrics;      // nothing where a side lacks it
  std::optional<LogitMetrics> choice;  // of whole logits
};

void measure_row(const Traces& traces, int64_t whole_logits, Row& row) {
  row.metrics = compare_rows(traces.reference, traces.suspect, row.result->name, row.position,
                             slots_of_suspect(traces, row.result->name, row.position));
  if (!row.metrics || row.result->name != "logits") return;
  const auto a = traces.reference.row("logits", row.position);
  const auto b = traces.suspect.row("logits", row.position);
  const int64_t width = std::min(a->width, b->width);
  if (width < whole_logits) return;  // the largest of all may be among those that were cut off
  row.choice = logit_metrics(row_values(*a, width), row_values(*b, width));
}

void count_choice(const LogitMetrics& m, ChoiceStatistics& choices) {
  ++choices.compared;
  choices.same += m.reference_choice == m.suspect_choice ? 1 : 0;
  if (!m.kl_divergence) return;
  ++choices.divergences;
  choices.sum_kl += *m.kl_divergence;
  choices.worst_kl = std::max(choices.worst_kl, *m.kl_divergence);
}

void add(const Traces& traces, const Row& row, bool keeps_rows, Comparison& out) {
  if (!row.metrics) return;
  CheckpointResult& result = *row.result;
  const double apart = row.metrics->relative_l2();
  if (keeps_rows) result.rows.compared.push_back(row_difference(row.position, *row.metrics));
  if (keeps_rows && row.choice) out.logits.push_back({row.position, *row.choice});
  if (result.positions == 0 || apart > result.worst_relative_l2) {
    result.worst_relative_l2 = apart;
    result.worst_position = row.position;
  }
  ++result.positions;
  result.metrics.add(*row.metrics);
  const bool beyond =
      row.metrics->non_finite_differs > 0 || apart > allowed_difference(traces, result.layer);
  if (beyond && !result.first_beyond) result.first_beyond = Beyond{row.position, *row.metrics};
  if (row.choice) count_choice(*row.choice, out.choices);
}

// Rows are measured in any order and added up in theirs, so that the sums have the same bits on
// any number of threads.
void measure_group(const Traces& traces, std::span<const int64_t> positions, const Scope& scope,
                   int threads, Comparison& out) {
  std::vector<Row> rows;
  const auto measure_rows = [&] {
    const auto range = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        measure_row(traces, scope.whole_logits, rows[static_cast<size_t>(i)]);
    };
    parallel_for(static_cast<int64_t>(rows.size()), 1, range, threads);
    for (const Row& row : rows) add(traces, row, scope.keeps_rows, out);
    rows.clear();
    traces.reference.release_pages(positions.front(), positions.back());
    traces.suspect.release_pages(positions.front(), positions.back());
  };
  int64_t touched_bytes = 0;
  for (CheckpointResult& result : scope.stretch.of(out.checkpoints)) {
    if (!result.comparable || !result.in_reference || !result.in_suspect) continue;
    for (const int64_t position : positions) rows.push_back({&result, position, {}, {}});
    // Scores have a line for each head, as long as there are positions.
    const bool scores = result.name.ends_with("attn_scores") || result.name.ends_with("attn_probs");
    const int64_t width = traces.reference.checkpoint(result.name)->width;
    touched_bytes +=
        16 * width * (scores ? positions.back() + 1 : 1) * static_cast<int64_t>(positions.size());
    if (touched_bytes < kTouchedBytes) continue;
    measure_rows();
    touched_bytes = 0;
  }
  measure_rows();
}

// Rows compared, of those that either side has. Of a row that was cut off, its share counts.
double coverage(const Traces& traces, const Scope& scope, const Comparison& c) {
  double compared = 0;
  double anywhere = 0;
  for (const CheckpointResult& result : c.checkpoints) {
    if (!result.known) continue;
    compared += result.share * static_cast<double>(result.positions);
    anywhere += static_cast<double>(std::ranges::count_if(scope.anywhere, [&](int64_t position) {
      return traces.reference.row(result.name, position) ||
             traces.suspect.row(result.name, position);
    }));
  }
  return anywhere > 0 ? compared / anywhere : 0;
}

}  // namespace

void measure(const Traces& traces, const Scope& scope, int threads, Comparison& out) {
  Progress progress("comparing", static_cast<int64_t>(scope.compared.size()), "positions");
  const auto groups = groups_of(traces, scope);
  for (size_t i = 0; i < groups.size(); ++i) {
    // The disk reads the next group while the cores measure this one.
    if (i + 1 < groups.size())
      for (const auto* trace : {&traces.reference, &traces.suspect})
        trace->read_ahead(groups[i + 1].front(), groups[i + 1].back());
    measure_group(traces, groups[i], scope, threads, out);
    progress.advance(static_cast<int64_t>(groups[i].size()));
  }
}

void measure_coverage(const Traces& traces, const Scope& scope, Comparison& out) {
  out.coverage = coverage(traces, scope, out);
  if (!scope.keeps_rows) return;
  for (CheckpointResult& result : out.checkpoints) {
    result.rows.allowed = allowed_difference(traces, result.layer);
    for (const int64_t position : scope.anywhere) {
      const bool a = traces.reference.row(result.name, position).has_value();
      const bool b = traces.suspect.row(result.name, position).has_value();
      if (a != b) (a ? result.rows.only_reference : result.rows.only_suspect).push_back(position);
    }
  }
}

}  // namespace lockstep::parity
