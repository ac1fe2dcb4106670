#include "doctor/worked_out.h"

#include <algorithm>
#include <cmath>

#include "doctor/alterations.h"
#include "doctor/number_worker.h"
#include "op/activation.h"
#include "quant/decode.h"

namespace lockstep::doctor {
namespace {

std::vector<float> row_of_weight(const op::Weight& weight, int64_t row) {
  std::vector<float> out(static_cast<size_t>(weight.columns));
  quant::decode(weight.format->format(), weight.row(row), weight.columns, out.data());
  return out;
}

// A number of a weight that is one row.
double number_of(const op::Weight& weight, int64_t column) {
  return static_cast<double>(row_of_weight(weight, 0)[static_cast<size_t>(column)]);
}

}  // namespace

size_t producer_index(const op::Program& program, op::ValueId id) {
  const auto at = std::ranges::find_if(program.ops, [&](const op::Op& op) {
    return std::ranges::find(op.outputs, id) != op.outputs.end();
  });
  return static_cast<size_t>(at - program.ops.begin());
}

Working NumberWorker::run() {
  const std::string left = name_of_result();
  if (deviation_.result_of) position_ = deviation_.result_of(position_);
  if (!deviation_.columns.empty() && op_.outputs[0] == id_)
    column_ = deviation_.columns[static_cast<size_t>(column_)];
  if (column_ == kZeros) {
    out_.formula = left + " = 0";
    return out_;
  }
  if (deviation_.row)
    work_row();
  else
    std::visit([&](const auto& what) { work(what); }, op_.what);
  if (failed_ || right_.empty()) return {};
  if (deviation_.factor != 1) {
    right_ = fmt::format("{:g} · ({})", deviation_.factor, right_);
    out_.value *= deviation_.factor;
  }
  if (deviation_.limit > 0) {
    right_ = fmt::format("({}) cut to ±{:g}", right_, deviation_.limit);
    out_.value = std::clamp(out_.value, -deviation_.limit, deviation_.limit);
  }
  if (deviation_.gives && !deviation_.formula.empty()) {
    const auto rows = replay_.replayed_rows(id_, {&position_, 1});
    if (!rows) return {};
    right_ = fmt::format("{} of {}", deviation_.formula, right_);
    out_.value = rows->row(0)[column_];
  } else if (deviation_.gives) {
    right_ = fmt::format("({}), rounded", right_);
    deviation_.gives({&out_.value, 1});
  }
  out_.formula = fmt::format("{} = {}", left, right_);
  return out_;
}

// By a formula that belongs to no op.
void NumberWorker::work_row() {
  std::vector<std::vector<double>> inputs;
  for (size_t i = 0; i < op_.inputs.size(); ++i) {
    inputs.push_back(row(i, position_));
    if (failed_) return;
    const std::vector<double> read = inputs[i];
    for (size_t c = 0; i == 0 && c < read.size(); ++c) {
      const int64_t from = input_column(static_cast<int64_t>(c));
      inputs[0][c] = from == kZeros ? 0 : read[static_cast<size_t>(from)];
    }
    if (column_ < std::ssize(inputs.back())) part(i, column_);
  }
  const std::vector<std::span<const double>> rows(inputs.begin(), inputs.end());
  std::vector<double> result(static_cast<size_t>(program_.value(id_).width));
  deviation_.row(rows, deviation_.position ? deviation_.position(position_) : position_, result);
  out_.value = result[static_cast<size_t>(column_)];
  right_ = deviation_.formula;
}

void NumberWorker::work(const op::Linear& linear) {
  const auto x = row(0, position_);
  if (failed_) return;
  const auto weights = row_of_weight(linear.weight, column_);
  std::vector<Working::Part> terms;
  for (int64_t i = 0; i < linear.weight.columns; ++i) {
    const int64_t from = input_column(i);
    if (from == kZeros) continue;
    terms.push_back(term(fmt::format("{}[{}, {}]", linear.weight.name, column_, i),
                         static_cast<double>(weights[static_cast<size_t>(i)]),
                         said_of(0, from, read_from(0, position_), position_),
                         x[static_cast<size_t>(from)]));
  }
  add_terms(std::move(terms));
  right_ = fmt::format("sum over i of {}[{}, i] · {}[i]", linear.weight.name, column_, name_of(0));
  if (!linear.bias) return;
  right_ += fmt::format(" + {}", indexed(linear.bias->name, column_));
  part(indexed(linear.bias->name, column_), number_of(*linear.bias, column_));
  out_.value += out_.parts.back().value;
}

void NumberWorker::work(const op::Norm& norm) {
  const auto x = row(0, position_);
  if (failed_) return;
  const int64_t first = column_ / norm.group * norm.group;
  const int64_t of_weight = norm.weight_of(first) + column_ - first;
  const bool layer = norm.kind == op::Norm::Kind::kLayer;
  const auto group =
      std::span(x).subspan(static_cast<size_t>(first), static_cast<size_t>(norm.group));
  double mean = 0;
  for (const double each : group) mean += each / static_cast<double>(norm.group);
  double squares = 0;
  for (const double each : group) {
    const double off = layer ? each - mean : each;
    squares += off * off / static_cast<double>(norm.group);
  }
  const double number = part(0, column_);
  if (layer) part("mean", mean);
  part(layer ? "variance" : "mean of squares", squares);
  part("epsilon", norm.epsilon);
  part(indexed(norm.weight.name, of_weight), number_of(norm.weight, of_weight));
  out_.value = (layer ? number - mean : number) / std::sqrt(squares + norm.epsilon) *
               out_.parts.back().value;
  right_ =
      fmt::format("{} / sqrt({} + epsilon) · {}",
                  layer ? fmt::format("({} - mean)", indexed(name_of(0), column_))
                        : indexed(name_of(0), column_),
                  layer ? "variance" : "mean of squares", indexed(norm.weight.name, of_weight));
  if (!norm.bias) return;
  right_ += fmt::format(" + {}", indexed(norm.bias->name, of_weight));
  part(indexed(norm.bias->name, of_weight), number_of(*norm.bias, of_weight));
  out_.value += out_.parts.back().value;
}

void NumberWorker::work(const op::Embed& embed) {
  int64_t index = deviation_.position ? deviation_.position(position_) : position_;
  const bool by_token = embed.index == op::Embed::Index::kToken;
  if (by_token) {
    const int64_t owner = read_from(0, position_);
    if (owner < 0 || owner >= std::ssize(tokens_)) return;
    const int64_t rows = embed.table.rows;
    index = ((tokens_[static_cast<size_t>(owner)] + deviation_.token_offset) % rows + rows) % rows;
  }
  if (index < 0 || index >= embed.table.rows) return;
  right_ = fmt::format("{}[{} {}, {}]", embed.table.name, by_token ? "token" : "position", index,
                       column_);
  out_.value = static_cast<double>(row_of_weight(embed.table, index)[static_cast<size_t>(column_)]);
  part(right_, out_.value);
}

void NumberWorker::work(const op::Activate& activate) {
  static constexpr const char* kNames[] = {"silu", "gelu_tanh", "gelu_erf", "clamped_swish"};
  const double x = part(0, column_);
  right_ = fmt::format("{}({})", kNames[static_cast<size_t>(activate.kind)],
                       indexed(name_of(0), column_));
  out_.value = op::activated(activate.kind, x);
  part(right_, out_.value);
  if (op_.inputs.size() < 2) return;
  const double y = part(1, column_);
  const std::string second = indexed(name_of(1), column_);
  out_.value *= op::factor_of_gate(activate.kind, y);
  right_ += activate.kind == op::Activate::Kind::kClampedSwish
                ? fmt::format(" · (1 + clamp({}, -7, 7))", second)
                : " · " + second;
}

std::string place_of(const op::Program& program, op::ValueId id, int64_t column, int64_t columns) {
  const op::Value& value = program.value(id);
  if (value.shape == op::Value::Shape::kScores) {
    const int64_t keys = columns / value.width;
    return fmt::format("head {}, key {}", column / keys, column % keys);
  }
  const op::Op& op = program.ops[producer_index(program, id)];
  int64_t size = 0;
  if (const auto* rope = std::get_if<op::Rope>(&op.what)) size = rope->head_size;
  if (const auto* attention = std::get_if<op::Attention>(&op.what)) size = attention->value_size;
  if (const auto* norm = std::get_if<op::Norm>(&op.what);
      norm != nullptr && norm->group < value.width)
    size = norm->group;
  if (size > 0) return fmt::format("head {}, column {}", column / size, column % size);
  if (std::holds_alternative<op::Linear>(op.what)) return fmt::format("output row {}", column);
  return fmt::format("column {}", column);
}

Working work_out(parity::Replay& replay, const parity::Forward& forward, const trace::Trace& trace,
                 std::span<const int32_t> tokens, op::ValueId id, int64_t position, int64_t column,
                 int64_t columns) {
  return NumberWorker(replay, forward, trace, tokens, id, position, column, columns).run();
}

}  // namespace lockstep::doctor
