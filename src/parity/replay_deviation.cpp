// The replay of an op that deviates from what it should be: an experiment on a forward pass.
#include <algorithm>
#include <cmath>

#include "parity/deviate.h"
#include "parity/replay.h"

namespace lockstep::parity {

void take_columns(std::span<const int64_t> columns, Matrix& matrix) {
  if (columns.empty()) return;
  LS_CHECK(std::ssize(columns) == matrix.columns);
  std::vector<double> row(columns.size());
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (size_t i = 0; i < columns.size(); ++i)
      row[i] = columns[i] == op::Deviation::kZeros ? 0 : matrix.row(r)[columns[i]];
    std::ranges::copy(row, matrix.row(r));
  }
}

void deviate_variance(const op::Deviation& deviation, Matrix& variance) {
  take_columns(deviation.columns, variance);
  if (deviation.factor != 1)
    for (double& value : variance.values) value *= deviation.factor * deviation.factor;
}

void deviate(const op::Deviation& deviation, std::span<const Matrix* const> inputs,
             std::span<const int64_t> positions, Matrix& result) {
  if (deviation.row)
    for (int64_t r = 0; r < result.rows; ++r) {
      std::vector<std::span<const double>> rows;
      for (const Matrix* input : inputs)
        rows.emplace_back(input->row(r), static_cast<size_t>(input->columns));
      deviation.row(rows, positions[static_cast<size_t>(r)],
                    {result.row(r), static_cast<size_t>(result.columns)});
    }
  take_columns(deviation.columns, result);
  if (deviation.factor != 1)
    for (double& value : result.values) value *= deviation.factor;
  if (deviation.limit > 0)
    for (double& value : result.values)
      value = std::clamp(value, -deviation.limit, deviation.limit);
  if (deviation.gives)
    for (int64_t r = 0; r < result.rows; ++r)
      deviation.gives({result.row(r), static_cast<size_t>(result.columns)});
}

const op::Deviation* Replay::deviation_of(const op::Op& op) const {
  if (forward_.deviations.empty()) return nullptr;
  const auto found = forward_.deviations.find(static_cast<size_t>(&op - program_.ops.data()));
  return found != forward_.deviations.end() ? &found->second : nullptr;
}

std::optional<Replay::Outcome> Replay::evaluate(op::ValueId id, Positions positions) {
  const op::Op& op = *producer_[static_cast<size_t>(id)];
  const op::Deviation* deviation = deviation_of(op);
  if (deviation == nullptr || !deviation->result_of || is_scores(program_.value(id)))
    return evaluate_op(op, id, positions);
  std::vector<int64_t> others;
  for (const int64_t position : positions) others.push_back(deviation->result_of(position));
  return evaluate_op(op, id, others);
}

// An op's input at these positions, as the op reads it.
Replay::Estimated Replay::obtain_input(const op::Op& op, size_t index, Positions positions) {
  const op::Deviation* deviation = deviation_of(op);
  const bool other_columns =
      deviation != nullptr && index == 0 && !deviation->input_columns.empty();
  if (deviation == nullptr || (!deviation->reads && !other_columns && !deviation->takes))
    return obtain(op.inputs[index], positions);
  std::vector<int64_t> others;
  std::vector<int64_t> zeros;
  for (size_t r = 0; r < positions.size(); ++r) {
    const int64_t other = deviation->reads ? deviation->reads(index, positions[r]) : positions[r];
    if (other == op::Deviation::kZeros) zeros.push_back(static_cast<int64_t>(r));
    others.push_back(other == op::Deviation::kZeros ? positions[r] : other);
  }
  const Estimated read = obtain(op.inputs[index], others);
  if (read == nullptr || (zeros.empty() && !other_columns && !deviation->takes)) return read;
  auto out = std::make_shared<Estimate>(*read);
  const auto clear = [&](Matrix& matrix) {
    if (matrix.values.empty()) return;
    if (other_columns) take_columns(deviation->input_columns, matrix);
    for (const int64_t r : zeros) std::fill_n(matrix.row(r), matrix.columns, 0.0);
  };
  const auto take = [&](Matrix& matrix) {
    clear(matrix);
    for (int64_t r = 0; deviation->takes && r < matrix.rows; ++r)
      deviation->takes(index, {matrix.row(r), static_cast<size_t>(matrix.columns)});
  };
  take(out->value);
  clear(out->variance);
  for (Matrix& sample : out->samples) take(sample);
  for (const int64_t r : zeros) out->tainted[static_cast<size_t>(r)] = false;
  return out;
}

// The tokens and positions that an op takes its rows for. Nothing: there is no such token. Beyond
// either end of a table an offset goes on at the other.
std::optional<Replay::Placed> Replay::place_of(const op::Op& op, Positions positions) const {
  const op::Deviation* deviation = deviation_of(op);
  const auto* embed = std::get_if<op::Embed>(&op.what);
  Placed out;
  for (const int64_t position : positions) {
    int64_t owner = position;
    if (deviation != nullptr && deviation->reads && embed != nullptr)
      owner = deviation->reads(0, position);
    if (owner < 0 || owner >= static_cast<int64_t>(tokens_.size())) return std::nullopt;
    int32_t token = tokens_[static_cast<size_t>(owner)];
    int64_t counted = position;
    if (deviation != nullptr && deviation->token_offset != 0 && embed != nullptr) {
      const int64_t rows = embed->table.rows;
      token = static_cast<int32_t>(((token + deviation->token_offset) % rows + rows) % rows);
    }
    if (deviation != nullptr && deviation->position) counted = deviation->position(position);
    if (embed != nullptr) {
      const int64_t row = embed->index == op::Embed::Index::kToken ? token : counted;
      if (row < 0 || row >= embed->table.rows) return std::nullopt;
    }
    out.tokens.push_back(token);
    out.positions.push_back(counted);
  }
  return out;
}

}  // namespace lockstep::parity
