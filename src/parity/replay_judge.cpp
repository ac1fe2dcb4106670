// What was recorded beside what it should have been.
#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "parity/replay.h"
#include "parity/rounding.h"

namespace lockstep::parity {
namespace {

// Numbers of a value that are judged at a time, fewer where others must be computed for it. Each
// takes 8 bytes in some matrices at a time.
constexpr int64_t kDerivedAtATime = 1 << 22;

// Of the differences in one row, over those that are finite.
double mean_square_difference(const Matrix& a, const Matrix& b, int64_t row) {
  double squares = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < a.columns; ++i) {
    const double difference = a.row(row)[i] - b.row(row)[i];
    if (!std::isfinite(difference)) continue;
    squares += square(difference);
    ++finite;
  }
  return finite > 0 ? squares / static_cast<double>(finite) : 0;
}

}  // namespace

std::vector<int64_t> Replay::recorded_of(op::ValueId id, Positions positions) const {
  std::vector<int64_t> there;
  for (const int64_t position : positions)
    if (trace_.row(program_.value(id).name, position)) there.push_back(position);
  return there;
}

// Rows for which all that lies in the value's layer can be there at once.
size_t Replay::derived_at_a_time(op::ValueId id) const {
  const op::Op& op = *producer_[static_cast<size_t>(id)];
  int64_t widest = program_.value(id).width;
  for (const op::Op& each : program_.ops)
    if (each.layer == op.layer)
      for (const op::ValueId value : each.inputs)
        widest = std::max(widest, program_.value(value).width);
  return static_cast<size_t>(std::max<int64_t>(1, kDerivedAtATime / widest));
}

// Memory is bounded whatever the length of a trace.
size_t Replay::rows_at_a_time(op::ValueId id, Positions positions) const {
  const op::Value& value = program_.value(id);
  const int64_t columns = value.width * (is_scores(value) ? positions.back() + 1 : 1);
  auto rows = static_cast<size_t>(std::max<int64_t>(1, judged_at_a_time_ / columns));
  const op::Op& op = *producer_[static_cast<size_t>(id)];
  if (!std::ranges::all_of(op.inputs,
                           [&](op::ValueId input) { return recorded(input, positions); }))
    rows = std::min(rows, derived_at_a_time(id));
  // In parts of about the same size.
  const size_t parts = (positions.size() + rows - 1) / rows;
  return (positions.size() + parts - 1) / parts;
}

std::optional<std::vector<OwnError>> Replay::judge(op::ValueId id,
                                                   std::span<const int64_t> positions,
                                                   Settle settle) {
  compute_rounding(true);
  return judge_recorded(id, positions, settle);
}

// What was derived with it, or without, is of no use otherwise.
void Replay::compute_rounding(bool whether) {
  if (rounding_ != whether) derived_.clear();
  rounding_ = whether;
}

std::optional<std::vector<OwnError>> Replay::judge_recorded(op::ValueId id, Positions positions,
                                                            Settle settling) {
  const std::vector<int64_t> there = recorded_of(id, positions);
  if (there.empty()) return std::nullopt;
  end_ = there.back() + 1;
  const size_t rows = rows_at_a_time(id, there);
  std::vector<OwnError> out(there.size());
  Others others;
  const auto judge_part = [&](size_t first) {
    const auto some = std::span(there).subspan(first, std::min(rows, there.size() - first));
    const auto judged = judge_some(id, some, settling, others);
    if (!judged) return false;
    for (const OwnError& own : *judged)
      if (own.settled && (!others.worst || own.is_worse_than(*others.worst))) others.worst = own;
    std::ranges::copy(*judged, out.begin() + static_cast<std::ptrdiff_t>(first));
    return true;
  };
  std::optional<LooksWorst> looks_worst;
  for (size_t first = 0; first < there.size(); first += rows) {
    others.looks_worst = rows < there.size() && !others.worst ? &looks_worst : nullptr;
    if (!judge_part(first)) return std::nullopt;
  }
  if (!looks_worst || (others.worst && !looks_worst->own.is_worse_than(*others.worst))) return out;
  others.looks_worst = nullptr;
  const OwnError settled =
      judge_linear(id, std::span(&looks_worst->own.position, 1), others, &looks_worst->value)
          ->front();
  *std::ranges::find(out, settled.position, &OwnError::position) = settled;
  if (!others.worst || settled.is_worse_than(*others.worst)) others.worst = settled;
  // What still looks worse than that is settled too.
  for (size_t first = 0; first < there.size(); first += rows) {
    const auto part = std::span(out).subspan(first, std::min(rows, there.size() - first));
    const bool open = std::ranges::any_of(part, [&](const OwnError& own) {
      return !own.settled && own.is_worse_than(*others.worst);
    });
    if (open && !judge_part(first)) return std::nullopt;
  }
  return out;
}

// What was recorded at the positions, as far as it can be judged.
std::optional<Matrix> Replay::actual_rows(op::ValueId id, Positions positions) const {
  if (recorded(id, positions)) return read(id, positions);
  // A vocabulary without its padding is judged as far as it goes.
  const op::Value& value = program_.value(id);
  const int64_t width = trace_.row(value.name, positions[0])->width;
  if (is_scores(value) || width > value.width) return std::nullopt;
  Matrix out(static_cast<int64_t>(positions.size()), width);
  for (int64_t r = 0; r < out.rows; ++r) {
    const auto row = *trace_.row(value.name, positions[static_cast<size_t>(r)]);
    if (row.lines != 1 || row.width < width) return std::nullopt;
    row.read(0, 0, width, out.row(r));
  }
  return out;
}

std::optional<Replay::Held> Replay::hold(op::ValueId id, Positions positions) {
  auto actual = actual_rows(id, positions);
  if (!actual) return std::nullopt;
  Held out;
  out.actual = std::move(*actual);
  auto replayed = evaluate(id, positions);
  if (!replayed) return std::nullopt;
  Estimate& estimate = replayed->estimate;
  LS_CHECK(out.actual.columns <= estimate.value.columns);
  if (rounding_ && !estimate.samples.empty())
    parallel_rows(out.actual.rows, out.actual.columns, threads_, [&](int64_t r) {
      double spread = 0;
      for (const Matrix& sample : estimate.samples)
        spread += mean_square_difference(sample, estimate.value, r) / kSamples;
      for (int64_t i = 0; i < out.actual.columns; ++i) estimate.variance.row(r)[i] += spread;
    });
  out.replayed = std::move(*replayed);
  return out;
}

std::optional<std::vector<OwnError>> Replay::judge_some(op::ValueId id, Positions positions,
                                                        Settle settling, const Others& others) {
  const op::Op& op = *producer_[static_cast<size_t>(id)];
  const auto all_recorded = [&](const std::vector<op::ValueId>& ids) {
    return std::ranges::all_of(ids, [&](op::ValueId each) { return recorded(each, positions); });
  };
  const bool product = std::holds_alternative<op::Linear>(op.what);
  const bool of_experts = std::holds_alternative<op::ExpertLinear>(op.what) && all_recorded({id});
  if (settling == Settle::kWorst && deviation_of(op) == nullptr && (product || of_experts) &&
      all_recorded(op.inputs))
    return judge_linear(id, positions, others);
  if (std::holds_alternative<op::Choose>(op.what)) return judge_experts_chosen(id, positions);
  const auto held = hold(id, positions);
  if (!held) return std::nullopt;
  const Matrix& actual = held->actual;
  const Estimate& estimate = held->replayed.estimate;
  const auto columns = static_cast<size_t>(actual.columns);
  const std::vector<double> none(rounding_ ? 0 : columns);
  std::vector<OwnError> out(positions.size());
  parallel_rows(actual.rows, actual.columns, threads_, [&](int64_t r) {
    const auto place = static_cast<size_t>(r);
    OwnError own = compare_row({actual.row(r), columns}, {estimate.value.row(r), columns},
                               rounding_ ? std::span(estimate.variance.row(r), columns) : none,
                               is_scores(program_.value(id)));
    own.position = positions[place];
    // A NaN that an input had is not this op's.
    if (own.non_finite && estimate.tainted[place]) {
      own.non_finite = false;
      own.worst_ratio = 0;
    }
    out[place] = own;
  });
  return out;
}

std::optional<std::vector<OwnError>> Replay::measure(op::ValueId id, Positions positions) {
  compute_rounding(false);
  return judge_recorded(id, positions, Settle::kAll);
}

std::optional<Matrix> Replay::recorded_rows(op::ValueId id, Positions positions) const {
  if (recorded_of(id, positions).size() != positions.size()) return std::nullopt;
  return actual_rows(id, positions);
}

std::optional<Matrix> Replay::replayed_rows(op::ValueId id, Positions positions, int64_t end) {
  if (positions.empty()) return std::nullopt;
  compute_rounding(false);
  end_ = std::max(end, *std::ranges::max_element(positions) + 1);
  auto out = evaluate(id, positions);
  if (!out) return std::nullopt;
  return std::move(out->estimate.value);
}

std::optional<Matrix> Replay::known_rows(op::ValueId id, Positions positions) {
  if (positions.empty()) return std::nullopt;
  compute_rounding(false);
  end_ = *std::ranges::max_element(positions) + 1;
  const Estimated out = obtain(id, positions);
  if (out == nullptr) return std::nullopt;
  return out->value;
}

void Replay::adopt(const Replay& other, size_t op) {
  rounding_ = other.rounding_;
  for (const auto& [key, estimate] : other.derived_)
    if (static_cast<size_t>(producer_[static_cast<size_t>(key.first)] - program_.ops.data()) < op)
      derived_[key] = estimate;
}

std::vector<size_t> Replay::stretch(op::ValueId id, int64_t position) const {
  std::vector<op::ValueId> open = {id};
  std::vector<bool> seen(program_.ops.size());
  while (!open.empty()) {
    const op::Op& op = *producer_[static_cast<size_t>(open.back())];
    open.pop_back();
    const auto index = static_cast<size_t>(&op - program_.ops.data());
    if (seen[index]) continue;
    seen[index] = true;
    for (const op::ValueId input : op.inputs)
      if (!usable_row(input, position)) open.push_back(input);
  }
  std::vector<size_t> out;
  for (size_t i = 0; i < seen.size(); ++i)
    if (seen[i]) out.push_back(i);
  return out;
}

std::vector<std::vector<Replay::Element>> Replay::wrong_elements(
    op::ValueId id, std::span<const int64_t> positions) {
  std::vector<std::vector<Element>> out;
  const bool scores = is_scores(program_.value(id));
  if (positions.empty()) return {};
  compute_rounding(true);
  end_ = positions.back() + 1;
  const size_t rows = rows_at_a_time(id, positions);
  for (size_t first = 0; first < positions.size(); first += rows) {
    const auto some = positions.subspan(first, std::min(rows, positions.size() - first));
    const auto held = hold(id, some);
    if (!held) return {};
    const auto columns = static_cast<size_t>(held->actual.columns);
    const int64_t line = scores ? held->actual.columns / program_.value(id).width : 0;
    const Estimate& estimate = held->replayed.estimate;
    const bool chosen =
        std::holds_alternative<op::Choose>(producer_[static_cast<size_t>(id)]->what);
    for (int64_t r = 0; r < held->actual.rows; ++r) {
      out.emplace_back();
      // Experts are wrong that should not have been taken, in whatever order.
      const double* should = estimate.value.row(r);
      for (int64_t i = 0; chosen && i < held->actual.columns; ++i)
        if (std::find(should, should + columns, held->actual.row(r)[i]) == should + columns)
          out.back().push_back({0, i});
      if (chosen) continue;
      for (const int64_t i : elements_beyond(kRowLimit, {held->actual.row(r), columns},
                                             {estimate.value.row(r), columns},
                                             {estimate.variance.row(r), columns}, scores))
        out.back().push_back(line > 0 ? Element{i / line, i % line} : Element{0, i});
    }
  }
  return out;
}

std::optional<std::string> Replay::starts_after(op::ValueId id, int64_t position) const {
  std::vector<op::ValueId> open = producer_[static_cast<size_t>(id)]->inputs;
  std::vector<bool> seen(program_.values.size());
  bool gap = false;
  op::ValueId latest = -1;
  while (!open.empty()) {
    const op::ValueId value = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(value)]) continue;
    seen[static_cast<size_t>(value)] = true;
    if (usable_row(value, position)) {
      latest = std::max(latest, value);
      continue;
    }
    // What no engine is asked to record is part of the op that it belongs to.
    gap = gap || program_.value(value).checkpoint;
    const op::Op& op = *producer_[static_cast<size_t>(value)];
    open.insert(open.end(), op.inputs.begin(), op.inputs.end());
  }
  if (!gap) return std::nullopt;
  return latest >= 0 ? program_.value(latest).name : std::string();
}

}  // namespace lockstep::parity
