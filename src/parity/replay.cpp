#include "parity/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "parity/rounding.h"
#include "trace/checkpoints.h"

namespace lockstep::parity {
namespace {

namespace reference = exec::reference;

// Examples of a value that was not recorded. Their spread is taken over whole rows.
constexpr int kSamples = 2;
// Numbers of a value that are judged at a time, and that are kept for reuse.
constexpr int64_t kAtATime = 1 << 22;
constexpr int64_t kKept = 1 << 26;

bool is_scores(const op::Value& value) {
  return value.shape == op::Value::Shape::kScores;
}

DType stored_dtype(const trace::Trace& trace) {
  const auto& checkpoints = trace.manifest().checkpoints;
  return checkpoints.empty() ? DType::kF32 : checkpoints.front().dtype;
}

std::vector<bool> find_tainted(const Matrix& matrix) {
  std::vector<bool> out(static_cast<size_t>(matrix.rows));
  for (int64_t r = 0; r < matrix.rows; ++r)
    out[static_cast<size_t>(r)] = !std::all_of(matrix.row(r), matrix.row(r) + matrix.columns,
                                               [](double x) { return std::isfinite(x); });
  return out;
}

// All rows of one matrix to the given rows of another.
void copy_rows(const Matrix& in, const std::vector<int64_t>& to, Matrix& out) {
  for (size_t r = 0; r < to.size(); ++r)
    std::copy_n(in.row(static_cast<int64_t>(r)), in.columns, out.row(to[r]));
}

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

Replay::Replay(const Forward& forward, const trace::Precision& precision, const trace::Trace& trace,
               std::span<const int32_t> tokens, std::string_view used, int threads)
    : forward_(forward),
      program_(forward.program),
      trace_(trace),
      tokens_(tokens.begin(), tokens.end()),
      producer_(program_.values.size()),
      arithmetic_(arithmetic_of(precision, stored_dtype(trace))),
      threads_(threads) {
  for (const op::Op& op : program_.ops)
    for (const op::ValueId id : op.outputs) producer_[static_cast<size_t>(id)] = &op;
  for (const op::Value& value : program_.values)
    used_.push_back(trace::in_checkpoints(used, value.name));
}

// A row that has all its numbers.
std::optional<trace::Trace::Row> Replay::usable_row(op::ValueId id, int64_t position) const {
  if (!used_[static_cast<size_t>(id)]) return std::nullopt;
  const op::Value& value = program_.value(id);
  const auto row = trace_.row(value.name, position);
  if (!row) return std::nullopt;
  const bool whole = is_scores(value) ? row->lines == value.width && row->width > position
                                      : row->lines == 1 && row->width >= value.width;
  return whole ? row : std::nullopt;
}

bool Replay::recorded(op::ValueId id, Positions positions) const {
  return std::ranges::all_of(positions, [&](int64_t p) { return usable_row(id, p).has_value(); });
}

// The positions that exist when this one is computed.
int64_t Replay::step_end(int64_t position) const {
  for (const trace::StepInfo& step : trace_.manifest().steps)
    if (position < step.first_position + step.tokens) return step.first_position + step.tokens;
  return position + 1;
}

// Columns of attention's scores at these positions; what an engine recorded beyond is padding.
int64_t Replay::score_width(const op::Op& attention, Positions positions) const {
  int64_t width = 0;
  for (const int64_t position : positions) {
    width = std::max(width, position + 1);
    for (const size_t output : {size_t{1}, size_t{2}})
      if (const auto row = usable_row(attention.outputs[output], position))
        width = std::max(width, std::min(row->width, step_end(position)));
  }
  return width;
}

// Rows of a recorded value; scores and probabilities as [positions, heads * score_width].
Matrix Replay::read(op::ValueId id, Positions positions) const {
  const op::Value& value = program_.value(id);
  const bool scores = is_scores(value);
  const int64_t lines = scores ? value.width : 1;
  const int64_t width =
      scores ? score_width(*producer_[static_cast<size_t>(id)], positions) : value.width;
  Matrix out(static_cast<int64_t>(positions.size()), lines * width);
  // What was not recorded is not seen.
  if (scores && value.name.ends_with("attn_scores"))
    std::ranges::fill(out.values, -std::numeric_limits<double>::infinity());
  for (size_t r = 0; r < positions.size(); ++r) {
    const auto row = *usable_row(id, positions[r]);
    int64_t kept = std::min(width, row.width);
    if (scores) kept = std::min(kept, step_end(positions[r]));
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t i = 0; i < kept; ++i)
        out.row(static_cast<int64_t>(r))[line * width + i] = row.at(line, i);
  }
  return out;
}

// With the types that this op's result and inputs have in the trace.
Arithmetic Replay::arithmetic_of_op(const op::Op& op, op::ValueId id) const {
  const auto stored = [&](op::ValueId value) {
    if (!used_[static_cast<size_t>(value)]) return 0.0;
    const auto* info = trace_.checkpoint(program_.value(value).name);
    return info != nullptr ? unit(info->dtype) : 0.0;
  };
  Arithmetic out = arithmetic_;
  out.stored = stored(id);
  out.read = 0;
  for (const op::ValueId input : op.inputs) out.read = std::max(out.read, stored(input));
  for (const op::ValueId part : op.outputs) out.read = std::max(out.read, stored(part));
  return out;
}

// Where ropes change with the positions, each row by the op that it had then.
Matrix Replay::at_positions(const op::Op& op, Positions positions,
                            const std::function<Matrix(const op::What&)>& compute) const {
  Matrix out = compute(op.what);
  if (!forward_.early || !std::holds_alternative<op::Rope>(op.what)) return out;
  const auto index = static_cast<size_t>(&op - program_.ops.data());
  const Matrix early = compute(forward_.early->ops[index].what);
  for (size_t r = 0; r < positions.size(); ++r)
    if (step_end(positions[r]) <= forward_.early_end)
      std::copy_n(early.row(static_cast<int64_t>(r)), out.columns,
                  out.row(static_cast<int64_t>(r)));
  return out;
}

// By row: the largest number of the value in the whole step that the row belongs to, as far as it
// is there.
std::vector<double> Replay::largest_in_steps(op::ValueId id, const Matrix& rows,
                                             Positions positions) const {
  std::map<int64_t, double> of_step;  // by the position after it
  for (size_t r = 0; r < positions.size(); ++r) {
    const auto row = static_cast<int64_t>(r);
    double& largest = of_step[step_end(positions[r])];
    largest = std::max(largest, largest_of({rows.row(row), static_cast<size_t>(rows.columns)}));
  }
  for (const trace::StepInfo& step : trace_.manifest().steps) {
    const auto found = of_step.find(step.first_position + step.tokens);
    if (found == of_step.end()) continue;
    for (int64_t p = step.first_position; p < found->first; ++p)
      if (usable_row(id, p))
        found->second = std::max(found->second, largest_of(read(id, {&p, 1}).values));
  }
  std::vector<double> out;
  for (const int64_t position : positions) out.push_back(of_step[step_end(position)]);
  return out;
}

// Row by row: as recorded, or replayed from what was.
Replay::Estimated Replay::obtain(op::ValueId id, Positions positions) {
  std::vector<int64_t> missing;
  std::vector<int64_t> missing_rows;
  for (size_t r = 0; r < positions.size(); ++r)
    if (!usable_row(id, positions[r])) {
      missing.push_back(positions[r]);
      missing_rows.push_back(static_cast<int64_t>(r));
    }
  if (missing.size() == positions.size()) return derive(id, positions);
  if (missing.empty()) {
    auto out = std::make_shared<Estimate>();
    out->value = read(id, positions);
    out->tainted = find_tainted(out->value);
    return out;
  }
  const Estimated derived = derive(id, missing);
  if (derived == nullptr) return nullptr;
  auto out = std::make_shared<Estimate>();
  out->value = Matrix(static_cast<int64_t>(positions.size()), derived->value.columns);
  for (size_t r = 0; r < positions.size(); ++r)
    if (const auto row = usable_row(id, positions[r]))
      for (int64_t i = 0; i < out->value.columns; ++i)
        out->value.row(static_cast<int64_t>(r))[i] = row->at(0, i);
  copy_rows(derived->value, missing_rows, out->value);
  out->variance = Matrix(out->value.rows, out->value.columns);
  copy_rows(derived->variance, missing_rows, out->variance);
  for (const Matrix& sample : derived->samples) {
    out->samples.push_back(out->value);
    copy_rows(sample, missing_rows, out->samples.back());
  }
  out->tainted = find_tainted(out->value);
  return out;
}

// A value that was not recorded, with examples of what rounding may have made of it. An example's
// errors are the same whoever asks for them, so that they cancel where an engine's would.
Replay::Estimated Replay::derive(op::ValueId id, Positions positions) {
  const auto key = std::pair(id, std::vector(positions.begin(), positions.end()));
  if (const auto found = derived_.find(key); found != derived_.end()) return found->second;
  auto outcome = evaluate(id, positions);
  if (!outcome) return derived_[key] = nullptr;
  Estimate& out = outcome->estimate;
  if (out.samples.empty()) out.samples.assign(kSamples, out.value);
  for (size_t s = 0; s < out.samples.size(); ++s)
    for (size_t r = 0; r < positions.size(); ++r) {
      const auto row = static_cast<int64_t>(r);
      Random random((static_cast<uint64_t>(id) << 40) ^ (static_cast<uint64_t>(positions[r]) << 8) ^
                    s);
      for (int64_t i = 0; i < out.value.columns; ++i)
        out.samples[s].row(row)[i] += std::sqrt(outcome->own.row(row)[i]) * random.gaussian();
    }
  derived_numbers_ += static_cast<int64_t>(out.value.values.size()) * (2 + kSamples);
  return derived_[key] = std::make_shared<const Estimate>(std::move(out));
}

std::optional<Replay::Outcome> Replay::evaluate(op::ValueId id, Positions positions) {
  const op::Op& op = *producer_[static_cast<size_t>(id)];
  if (std::holds_alternative<op::Attention>(op.what)) return evaluate_attention(op, id, positions);
  std::vector<Estimated> inputs;
  std::vector<const Matrix*> values;
  std::vector<const Matrix*> variances;
  for (const op::ValueId input : op.inputs) {
    Estimated estimate = obtain(input, positions);
    if (estimate == nullptr) return std::nullopt;
    values.push_back(&estimate->value);
    variances.push_back(&estimate->variance);
    inputs.push_back(std::move(estimate));
  }
  std::vector<int32_t> tokens;
  for (const int64_t position : positions) {
    if (position >= static_cast<int64_t>(tokens_.size())) return std::nullopt;
    tokens.push_back(tokens_[static_cast<size_t>(position)]);
  }
  const Place place{tokens, positions};
  const int64_t width = program_.value(id).width;
  const Evaluate run = [&](std::span<const Matrix* const> in) {
    return at_positions(op, positions, [&](const op::What& what) {
      return reference::evaluate(what, in, width, place, threads_);
    });
  };
  Outcome out;
  Estimate& estimate = out.estimate;
  estimate.value = run(values);
  Arithmetic arithmetic = arithmetic_of_op(op, id);
  std::vector<double> largest;
  if (std::holds_alternative<op::Linear>(op.what) && arithmetic.products.scale == Scale::kTensor) {
    largest = largest_in_steps(op.inputs[0], *values[0], positions);
    arithmetic.largest = largest;
  }
  out.own = at_positions(op, positions, [&](const op::What& what) {
    return rounding_variance(what, values, estimate.value, place, arithmetic, threads_);
  });
  estimate.variance = out.own;
  estimate.tainted.resize(positions.size());
  for (const Estimated& input : inputs)
    for (size_t r = 0; r < positions.size(); ++r)
      if (input->tainted[r]) estimate.tainted[r] = true;
  if (std::ranges::any_of(variances, [](const Matrix* m) { return !m->values.empty(); })) {
    const Matrix carried = at_positions(op, positions, [&](const op::What& what) {
      return carried_variance(what, values, variances, estimate.value, place, threads_);
    });
    for (size_t i = 0; i < carried.values.size(); ++i)
      estimate.variance.values[i] += carried.values[i];
  }
  sample(run, inputs, estimate);
  return out;
}

// Evaluates again from the examples of the inputs, where there are any.
void Replay::sample(const Evaluate& evaluate, std::span<const Estimated> inputs,
                    Estimate& out) const {
  const auto has_samples = [](const Estimated& e) { return e != nullptr && !e->samples.empty(); };
  if (std::ranges::none_of(inputs, has_samples)) return;
  const Matrix none;
  for (size_t s = 0; s < kSamples; ++s) {
    std::vector<const Matrix*> moved;
    for (const Estimated& input : inputs)
      moved.push_back(input == nullptr     ? &none
                      : has_samples(input) ? &input->samples[s]
                                           : &input->value);
    out.samples.push_back(evaluate(moved));
  }
}

std::vector<int64_t> Replay::recorded_of(op::ValueId id, Positions positions) const {
  std::vector<int64_t> there;
  for (const int64_t position : positions)
    if (trace_.row(program_.value(id).name, position)) there.push_back(position);
  return there;
}

size_t Replay::rows_at_a_time(op::ValueId id, Positions positions) const {
  int64_t columns = program_.value(id).width;
  if (is_scores(program_.value(id))) columns *= positions.back() + 1;
  return static_cast<size_t>(std::max<int64_t>(1, kAtATime / columns));
}

std::optional<std::vector<OwnError>> Replay::judge(op::ValueId id,
                                                   std::span<const int64_t> positions) {
  if (derived_numbers_ > kKept) {
    derived_.clear();
    derived_numbers_ = 0;
  }
  const std::vector<int64_t> there = recorded_of(id, positions);
  if (there.empty()) return std::nullopt;
  const size_t rows = rows_at_a_time(id, there);
  std::vector<OwnError> out;
  for (size_t first = 0; first < there.size(); first += rows) {
    const auto some = std::span(there).subspan(first, std::min(rows, there.size() - first));
    const auto judged = judge_some(id, some);
    if (!judged) return std::nullopt;
    out.insert(out.end(), judged->begin(), judged->end());
  }
  return out;
}

std::optional<Replay::Held> Replay::hold(op::ValueId id, Positions positions) {
  const op::Value& value = program_.value(id);
  Held out;
  if (recorded(id, positions)) {
    out.actual = read(id, positions);
  } else {
    // A vocabulary without its padding is judged as far as it goes.
    const int64_t width = trace_.row(value.name, positions[0])->width;
    if (is_scores(value) || width > value.width) return std::nullopt;
    out.actual = Matrix(static_cast<int64_t>(positions.size()), width);
    for (int64_t r = 0; r < out.actual.rows; ++r) {
      const auto row = *trace_.row(value.name, positions[static_cast<size_t>(r)]);
      if (row.lines != 1 || row.width < width) return std::nullopt;
      for (int64_t i = 0; i < width; ++i) out.actual.row(r)[i] = row.at(0, i);
    }
  }
  auto replayed = evaluate(id, positions);
  if (!replayed) return std::nullopt;
  Estimate& estimate = replayed->estimate;
  LS_CHECK(out.actual.columns <= estimate.value.columns);
  for (int64_t r = 0; r < out.actual.rows; ++r) {
    double spread = 0;
    for (const Matrix& sample : estimate.samples)
      spread += mean_square_difference(sample, estimate.value, r) / kSamples;
    for (int64_t i = 0; i < out.actual.columns; ++i) estimate.variance.row(r)[i] += spread;
  }
  out.replayed = std::move(*replayed);
  return out;
}

std::optional<std::vector<OwnError>> Replay::judge_some(op::ValueId id, Positions positions) {
  const auto held = hold(id, positions);
  if (!held) return std::nullopt;
  const auto& [actual, replayed] = *held;
  const Estimate& estimate = replayed.estimate;
  const op::Op& op = *producer_[static_cast<size_t>(id)];
  const auto columns = static_cast<size_t>(actual.columns);
  std::vector<OwnError> out;
  for (int64_t r = 0; r < actual.rows; ++r) {
    const auto place = static_cast<size_t>(r);
    OwnError own = compare_row({actual.row(r), columns}, {estimate.value.row(r), columns},
                               {estimate.variance.row(r), columns}, is_scores(program_.value(id)));
    own.position = positions[place];
    // A NaN that an input had is not this op's.
    if (own.non_finite && estimate.tainted[place]) {
      own.non_finite = false;
      own.worst_ratio = 0;
    }
    const auto* linear = std::get_if<op::Linear>(&op.what);
    if (linear != nullptr && recorded(op.inputs[0], positions.subspan(place, 1)))
      own.guaranteed =
          guaranteed_bound(*linear, read(op.inputs[0], positions.subspan(place, 1)).values,
                           own.worst_index, arithmetic_of_op(op, id));
    out.push_back(own);
  }
  return out;
}

std::vector<std::vector<Replay::Element>> Replay::wrong_elements(
    op::ValueId id, std::span<const int64_t> positions) {
  std::vector<std::vector<Element>> out;
  const bool scores = is_scores(program_.value(id));
  const size_t rows = positions.empty() ? 1 : rows_at_a_time(id, positions);
  for (size_t first = 0; first < positions.size(); first += rows) {
    const auto some = positions.subspan(first, std::min(rows, positions.size() - first));
    const auto held = hold(id, some);
    if (!held) return {};
    const auto columns = static_cast<size_t>(held->actual.columns);
    const int64_t line = scores ? held->actual.columns / program_.value(id).width : 0;
    const Estimate& estimate = held->replayed.estimate;
    for (int64_t r = 0; r < held->actual.rows; ++r) {
      out.emplace_back();
      for (const int64_t i :
           parity::wrong_elements({held->actual.row(r), columns}, {estimate.value.row(r), columns},
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
