#include "parity/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "base/random.h"
#include "exec/f64/ops.h"
#include "parity/deviate.h"
#include "parity/rounding.h"
#include "trace/checkpoints.h"

namespace lockstep::parity {
namespace {

DType stored_dtype(const trace::Trace& trace) {
  const auto& checkpoints = trace.manifest().checkpoints;
  return checkpoints.empty() ? DType::kF32 : checkpoints.front().dtype;
}

std::vector<bool> find_tainted(const Matrix& matrix, int threads) {
  std::vector<char> tainted(static_cast<size_t>(matrix.rows));
  parallel_rows(matrix.rows, matrix.columns, threads, [&](int64_t r) {
    tainted[static_cast<size_t>(r)] = std::all_of(matrix.row(r), matrix.row(r) + matrix.columns,
                                                  [](double x) { return std::isfinite(x); })
                                          ? 0
                                          : 1;
  });
  return {tainted.begin(), tainted.end()};
}

// All rows of one matrix to the given rows of another.
void copy_rows(const Matrix& in, const std::vector<int64_t>& to, Matrix& out) {
  for (size_t r = 0; r < to.size(); ++r)
    std::copy_n(in.row(static_cast<int64_t>(r)), in.columns, out.row(to[r]));
}

}  // namespace

Replay::Replay(const Forward& forward, const trace::Precision& precision, const trace::Trace& trace,
               std::span<const int32_t> tokens, std::string_view used, int threads,
               Products& products)
    : forward_(forward),
      program_(forward.program),
      trace_(trace),
      tokens_(tokens.begin(), tokens.end()),
      producer_(program_.values.size()),
      arithmetic_(arithmetic_of(precision, stored_dtype(trace))),
      threads_(threads),
      products_(products) {
  for (const op::Op& op : program_.ops)
    for (const op::ValueId id : op.outputs) producer_[static_cast<size_t>(id)] = &op;
  for (const op::Value& value : program_.values)
    used_.push_back(trace::in_checkpoints(used, value.name));
}

void Replay::use_only(const std::set<std::string>& names) {
  for (size_t i = 0; i < used_.size(); ++i)
    used_[i] = used_[i] && names.contains(program_.values[i].name);
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

// Columns of attention's scores at these positions; what an engine recorded beyond is padding.
int64_t Replay::score_width(const op::Op& attention, Positions positions) const {
  int64_t width = 0;
  for (const int64_t position : positions) {
    width = std::max(width, position + 1);
    for (const size_t output : {size_t{1}, size_t{2}})
      if (const auto row = usable_row(attention.outputs[output], position))
        width = std::max(width, std::min(row->width, step_end(trace_, position)));
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
  parallel_rows(out.rows, out.columns, threads_, [&](int64_t r) {
    const int64_t position = positions[static_cast<size_t>(r)];
    const auto row = *usable_row(id, position);
    int64_t kept = std::min(width, row.width);
    if (scores) kept = std::min(kept, step_end(trace_, position));
    for (int64_t line = 0; line < lines; ++line) row.read(line, 0, kept, out.row(r) + line * width);
  });
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
    if (step_end(trace_, positions[r]) <= forward_.early_end)
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
    double& largest = of_step[step_end(trace_, positions[r])];
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
  for (const int64_t position : positions) out.push_back(of_step[step_end(trace_, position)]);
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
    out->tainted = find_tainted(out->value, threads_);
    return out;
  }
  const Estimated derived = derive(id, missing);
  if (derived == nullptr) return nullptr;
  auto out = std::make_shared<Estimate>();
  out->value = Matrix(static_cast<int64_t>(positions.size()), derived->value.columns);
  for (size_t r = 0; r < positions.size(); ++r)
    if (const auto row = usable_row(id, positions[r]))
      row->read(0, 0, out->value.columns, out->value.row(static_cast<int64_t>(r)));
  copy_rows(derived->value, missing_rows, out->value);
  if (rounding_) {
    out->variance = Matrix(out->value.rows, out->value.columns);
    copy_rows(derived->variance, missing_rows, out->variance);
  }
  for (const Matrix& sample : derived->samples) {
    out->samples.push_back(out->value);
    copy_rows(sample, missing_rows, out->samples.back());
  }
  out->tainted = find_tainted(out->value, threads_);
  return out;
}

// A value that was not recorded, with examples of what rounding may have made of it. An example's
// errors are the same whoever asks for them, so that they cancel where an engine's would.
Replay::Estimated Replay::derive(op::ValueId id, Positions positions) {
  const auto key = std::pair(id, std::vector(positions.begin(), positions.end()));
  if (const auto found = derived_.find(key); found != derived_.end()) return found->second;
  const size_t rows = derived_at_a_time(id);
  const Estimated out =
      positions.size() <= rows ? derive_some(id, positions) : derive_in_parts(id, positions, rows);
  if (out != nullptr)
    derived_numbers_ += static_cast<int64_t>(out->value.values.size()) * (2 + kSamples);
  if (derived_numbers_ > kKept) {
    derived_.clear();
    derived_numbers_ = 0;
  }
  return derived_[key] = out;
}

Replay::Estimated Replay::derive_some(op::ValueId id, Positions positions) {
  auto outcome = evaluate(id, positions);
  if (!outcome) return nullptr;
  Estimate& out = outcome->estimate;
  if (!rounding_) return std::make_shared<const Estimate>(std::move(out));
  if (std::holds_alternative<op::Choose>(producer_[static_cast<size_t>(id)]->what))
    leave_open_choices(id, positions, out);
  if (out.samples.empty()) out.samples.assign(kSamples, out.value);
  for (size_t s = 0; s < out.samples.size(); ++s)
    parallel_rows(out.value.rows, 8 * out.value.columns, threads_, [&](int64_t row) {
      const auto position = static_cast<uint64_t>(positions[static_cast<size_t>(row)]);
      Random random((static_cast<uint64_t>(id) << 40) ^ (position << 8) ^ s);
      for (int64_t i = 0; i < out.value.columns; ++i)
        out.samples[s].row(row)[i] += std::sqrt(outcome->own.row(row)[i]) * random.gaussian();
    });
  return std::make_shared<const Estimate>(std::move(out));
}

// So that what it is made from need not be there for all positions at once.
Replay::Estimated Replay::derive_in_parts(op::ValueId id, Positions positions, size_t rows) {
  auto out = std::make_shared<Estimate>();
  const auto count = static_cast<int64_t>(positions.size());
  for (size_t first = 0; first < positions.size(); first += rows) {
    const Estimated part =
        derive_some(id, positions.subspan(first, std::min(rows, positions.size() - first)));
    if (part == nullptr) return nullptr;
    const int64_t columns = part->value.columns;
    if (first == 0) {
      out->value = Matrix(count, columns);
      if (rounding_) out->variance = out->value;
      if (rounding_) out->samples.assign(kSamples, out->value);
    }
    const auto append = [&](const Matrix& from, Matrix& to) {
      std::ranges::copy(from.values, to.row(static_cast<int64_t>(first)));
    };
    append(part->value, out->value);
    if (rounding_) append(part->variance, out->variance);
    for (size_t s = 0; s < out->samples.size(); ++s) append(part->samples[s], out->samples[s]);
    out->tainted.insert(out->tainted.end(), part->tainted.begin(), part->tainted.end());
  }
  return out;
}

std::optional<Replay::Outcome> Replay::evaluate_op(const op::Op& op, op::ValueId id,
                                                   Positions positions) {
  if (std::holds_alternative<op::Attention>(op.what)) return evaluate_attention(op, id, positions);
  std::vector<Estimated> inputs;
  std::vector<const Matrix*> values;
  std::vector<const Matrix*> variances;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    Estimated estimate = obtain_input(op, i, positions);
    if (estimate == nullptr) return std::nullopt;
    values.push_back(&estimate->value);
    variances.push_back(&estimate->variance);
    inputs.push_back(std::move(estimate));
  }
  const auto placed = place_of(op, positions);
  if (!placed) return std::nullopt;
  const Place place{placed->tokens, placed->positions};
  const op::Deviation* deviation = deviation_of(op);
  const int64_t width = program_.value(id).width;
  const Evaluate run = [&](std::span<const Matrix* const> in) {
    Matrix result = at_positions(op, positions, [&](const op::What& what) {
      return exec::f64::evaluate(what, in, width, place, threads_, nullptr, products_);
    });
    if (deviation != nullptr) deviate(*deviation, in, placed->positions, result);
    return result;
  };
  Outcome out;
  Estimate& estimate = out.estimate;
  estimate.value = run(values);
  estimate.tainted.resize(positions.size());
  for (const Estimated& input : inputs)
    for (size_t r = 0; r < positions.size(); ++r)
      if (input->tainted[r]) estimate.tainted[r] = true;
  if (!rounding_) return out;
  Arithmetic arithmetic = arithmetic_of_op(op, id);
  std::vector<double> largest;
  const bool product = std::holds_alternative<op::Linear>(op.what) ||
                       std::holds_alternative<op::ExpertLinear>(op.what);
  if (product && arithmetic.products.scale == Scale::kTensor) {
    largest = largest_in_steps(op.inputs[0], *values[0], positions);
    arithmetic.largest = largest;
  }
  out.own = at_positions(op, positions, [&](const op::What& what) {
    return rounding_variance(what, values, estimate.value, place, arithmetic, threads_);
  });
  estimate.variance = out.own;
  if (std::ranges::any_of(variances, [](const Matrix* m) { return !m->values.empty(); })) {
    const Matrix carried = at_positions(op, positions, [&](const op::What& what) {
      return carried_variance(what, values, variances, estimate.value, place, threads_, products_);
    });
    for (size_t i = 0; i < carried.values.size(); ++i)
      estimate.variance.values[i] += carried.values[i];
  }
  if (deviation != nullptr) {
    deviate_variance(*deviation, out.own);
    deviate_variance(*deviation, estimate.variance);
    // A factor is a product of its own, which is rounded too.
    for (size_t i = 0; deviation->factor != 1 && i < out.own.values.size(); ++i) {
      const double rounding = handed_on(estimate.value.values[i], arithmetic);
      out.own.values[i] += rounding;
      estimate.variance.values[i] += rounding;
    }
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

}  // namespace lockstep::parity
