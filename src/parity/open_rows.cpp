#include "parity/open_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "parity/conclude.h"
#include "parity/shape.h"

namespace lockstep::parity {
namespace {

constexpr size_t kMostRows = 2000;
constexpr size_t kMostOfASample = 64;  // where the user gave little time
constexpr size_t kAtATime = 16;        // rows that are replayed together

// What a row takes in a page, about.
int64_t page_bytes(int64_t elements) {
  return 16 * std::min<int64_t>(elements, OpenedRow::kPoints) + 4000;
}

struct Candidate {
  const CheckpointResult* result;
  Side side;
  int64_t position;
  double ratio;
  bool first;  // of its checkpoint: worst, or the first defect
  bool wrong;
};

bool goes_before(const Candidate& a, const Candidate& b) {
  if (a.first != b.first) return a.first;
  return a.ratio > b.ratio;
}

std::vector<Candidate> judged_candidates(const Comparison& c) {
  std::vector<Candidate> out;
  for (const CheckpointResult& result : c.checkpoints)
    for (const Side side : {Side::kReference, Side::kSuspect}) {
      const SideJudgement& judged = side == Side::kReference ? result.reference : result.suspect;
      for (const RowError& row : judged.rows) {
        const bool worst = judged.worst && judged.worst->position == row.position;
        const bool first_wrong =
            judged.first_defect && judged.first_defect->position == row.position;
        if (worst || row.ratio > 1)
          out.push_back(
              {&result, side, row.position, row.ratio, worst || first_wrong, row.ratio > 1});
      }
    }
  std::ranges::stable_sort(out, goes_before);
  if (!c.first_defect) return out;
  // The row that the headline is about.
  std::stable_partition(out.begin(), out.end(), [&](const Candidate& candidate) {
    return candidate.result->name == c.first_defect->checkpoint &&
           candidate.position == c.first_defect->position &&
           (candidate.side == c.first_defect->side || c.first_defect->side == Side::kBoth);
  });
  return out;
}

std::vector<Candidate> measured_candidates(const Comparison& c) {
  std::vector<Candidate> out;
  for (const CheckpointResult& result : c.checkpoints)
    for (const RowDifference& row : result.rows.compared) {
      const bool worst = row.position == result.worst_position;
      const double ratio = row.relative_l2 / result.rows.allowed;
      if (worst || ratio > 1)
        out.push_back({&result, Side::kUndetermined, row.position, ratio, worst, ratio > 1});
    }
  std::ranges::stable_sort(out, goes_before);
  return out;
}

void put_heads(std::span<const double> errors, std::span<const double> variance, int64_t heads,
               OpenedRow& out) {
  const auto size = errors.size() / static_cast<size_t>(std::max<int64_t>(heads, 1));
  for (int64_t head = 0; head < heads && size > 0; ++head) {
    double squares = 0;
    double granted = 0;
    for (size_t i = 0; i < size; ++i) {
      const size_t at = static_cast<size_t>(head) * size + i;
      squares += std::isfinite(errors[at]) ? errors[at] * errors[at]
                                           : std::numeric_limits<double>::infinity();
      granted += variance[at];
    }
    const auto count = static_cast<double>(size);
    out.heads.push_back({std::sqrt(squares / count), std::sqrt(granted / count)});
  }
}

class Opener {
 public:
  Opener(const SideScope& side, const Scope& scope, const CompareOptions& options, int threads)
      : scope_(scope),
        program_(side.forwards.front().program),
        replay_(side.forwards.front(), side.precision, *side.trace, side.tokens,
                options.checkpoints, threads, options.products()) {}

  // Rows of one checkpoint; what cannot be replayed is left out.
  std::vector<OpenedRow> open(const std::string& name, const std::vector<int64_t>& positions) {
    const op::ValueId id = scope_.ids.at(name);
    const op::Value& value = program_.value(id);
    const bool scores = value.shape == op::Value::Shape::kScores;
    const auto rows = replay_.open(id, positions);
    if (!rows) return {};
    const auto columns = static_cast<size_t>(rows->recorded.columns);
    std::vector<OpenedRow> out;
    for (int64_t r = 0; r < rows->recorded.rows; ++r) {
      const std::span<const double> variance{rows->variance.row(r), columns};
      OpenedRow row = open_row({rows->recorded.row(r), columns}, {rows->replayed.row(r), columns},
                               variance, scores);
      row.position = positions[static_cast<size_t>(r)];
      if (scores) row.keys = rows->recorded.columns / value.width;
      std::vector<double> errors(columns);
      for (size_t i = 0; i < columns; ++i)
        errors[i] = counted_error(rows->recorded.row(r)[i], rows->replayed.row(r)[i], scores);
      put_heads(errors, variance, heads_of(program_, id), row);
      put_inputs(*rows, r, !is_product(id), row);
      out.push_back(std::move(row));
    }
    return out;
  }

 private:
  void put_inputs(const Replay::Open& rows, int64_t r, bool by_element, OpenedRow& out) const {
    for (const Replay::Input& input : rows.inputs) {
      OpenedRow::Input& made = out.inputs.emplace_back();
      made.name = program_.value(input.id).name;
      made.width = input.value.columns;
      made.recorded = input.recorded;
      const double* numbers = input.value.row(r);
      double squares = 0;
      for (int64_t i = 0; i < made.width; ++i) {
        squares += numbers[i] * numbers[i];
        if (std::fabs(numbers[i]) > std::fabs(made.largest)) made.largest = numbers[i];
      }
      made.root_mean_square =
          std::sqrt(squares / static_cast<double>(std::max<int64_t>(made.width, 1)));
      made.by_element = by_element && made.width == out.elements;
      for (OpenedRow::Element& element : out.worst)
        if (made.by_element) element.inputs.push_back(numbers[element.index]);
    }
  }

  // Whether every element is made of whole rows of the inputs.
  bool is_product(op::ValueId id) const {
    return std::ranges::any_of(program_.ops, [&](const op::Op& op) {
      return std::ranges::find(op.outputs, id) != op.outputs.end() &&
             (std::holds_alternative<op::Linear>(op.what) ||
              std::holds_alternative<op::Attention>(op.what));
    });
  }

  const Scope& scope_;
  const op::Program& program_;
  Replay replay_;
};

std::optional<OpenedRow> open_difference(const Traces& traces, const Candidate& candidate) {
  const std::string& name = candidate.result->name;
  const auto a = traces.reference.row(name, candidate.position);
  const auto b = traces.suspect.row(name, candidate.position);
  if (!a || !b) return std::nullopt;
  const int64_t width = std::min(a->width, b->width);
  const std::vector<double> expected = row_values(*a, width);
  const std::vector<double> recorded = row_values(*b, width);
  if (recorded.size() != expected.size()) return std::nullopt;
  double squares = 0;
  for (const double value : expected) squares += std::isfinite(value) ? value * value : 0;
  const double allowed = candidate.result->rows.allowed / kRowLimit;
  const double mean = squares / static_cast<double>(std::max<size_t>(expected.size(), 1));
  const std::vector<double> variance(expected.size(), allowed * allowed * mean);
  OpenedRow out = open_row(recorded, expected, variance, a->lines > 1);
  if (a->lines > 1) out.keys = out.elements / a->lines;
  out.position = candidate.position;
  return out;
}

}  // namespace

void open_rows(const Traces& traces, const Scope& scope, const CompareOptions& options, int threads,
               Comparison& out) {
  const bool judged = scope.program() != nullptr;
  const std::vector<Candidate> all = judged ? judged_candidates(out) : measured_candidates(out);
  std::vector<Candidate> chosen;
  int64_t bytes = 0;
  for (const Candidate& candidate : all) {
    const trace::Trace& trace =
        candidate.side == Side::kReference ? traces.reference : traces.suspect;
    const auto row = trace.row(candidate.result->name, candidate.position);
    if (row) bytes += page_bytes(row->lines * row->width);
    if (!row || bytes > options.opened_bytes ||
        chosen.size() >= (scope.sampled ? kMostOfASample : kMostRows)) {
      out.not_opened += candidate.wrong ? 1 : 0;
      continue;
    }
    chosen.push_back(candidate);
  }
  // Replayed checkpoint by checkpoint, shown by their rank.
  std::map<std::pair<Side, std::string>, std::vector<size_t>> groups;
  for (size_t i = 0; i < chosen.size(); ++i)
    groups[{chosen[i].side, chosen[i].result->name}].push_back(i);
  std::vector<std::optional<OpenedRow>> opened(chosen.size());
  std::map<Side, std::unique_ptr<Opener>> openers;
  for (auto& [key, members] : groups) {
    std::ranges::sort(members, {}, [&](size_t i) { return chosen[i].position; });
    const auto& [side, name] = key;
    const bool scores = name.ends_with("attn_scores") || name.ends_with("attn_probs");
    const size_t step = scores ? 1 : kAtATime;
    for (size_t first = 0; first < members.size(); first += step) {
      const auto some = std::span(members).subspan(first, std::min(step, members.size() - first));
      if (side == Side::kUndetermined) {
        for (const size_t i : some) opened[i] = open_difference(traces, chosen[i]);
        continue;
      }
      auto& opener = openers[side];
      if (opener == nullptr)
        opener = std::make_unique<Opener>(
            side == Side::kReference ? scope.reference : scope.suspect, scope, options, threads);
      std::vector<int64_t> positions;
      for (const size_t i : some) positions.push_back(chosen[i].position);
      auto rows = opener->open(name, positions);
      for (size_t i = 0; i < rows.size(); ++i) opened[some[i]] = std::move(rows[i]);
    }
  }
  for (size_t i = 0; i < opened.size(); ++i) {
    if (!opened[i]) continue;
    opened[i]->checkpoint = chosen[i].result->name;
    opened[i]->side = chosen[i].side;
    // A NaN that an input had is not this row's.
    if (std::isfinite(chosen[i].ratio) && std::isinf(opened[i]->ratio))
      opened[i]->ratio = chosen[i].ratio;
    out.opened.push_back(std::move(*opened[i]));
  }
}

void list_tokens(const Scope& scope, const CompareOptions& options, Comparison& out) {
  const auto list = [&](const SideScope& side, SideTokens& tokens) {
    tokens.ids = side.trace->manifest().tokens;
    tokens.prompt = side.trace->manifest().prompt_tokens;
    if (!side.judged() || !options.tokens.text) return;
    for (const int32_t id : tokens.ids) tokens.texts.push_back(options.tokens.text({id}));
  };
  list(scope.reference, out.reference_tokens);
  list(scope.suspect, out.suspect_tokens);
}

}  // namespace lockstep::parity
