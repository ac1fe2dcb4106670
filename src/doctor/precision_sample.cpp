#include "doctor/precision_sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/f64/ops.h"
#include "op/activation.h"
#include "quant/decode.h"
#include "trace/checkpoints.h"

namespace lockstep::doctor {
namespace {

constexpr int64_t kMostColumns = 48;  // of a product's result
constexpr int64_t kMostKeys = 2048;   // that attention sees
constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

void round_matrix(const Grid* grid, Matrix& matrix, std::span<const double> largest = {}) {
  if (grid == nullptr) return;
  double of_all = 0;
  if (largest.empty() && grid->scale == detail::Scale::kTensor)
    for (const double x : matrix.values) of_all = std::max(of_all, std::fabs(x));
  for (int64_t r = 0; r < matrix.rows; ++r)
    round_row(*grid, {matrix.row(r), static_cast<size_t>(matrix.columns)},
              largest.empty() ? of_all : largest[static_cast<size_t>(r)]);
}

// In place of a weight that is one row; the numbers are for the caller to keep.
std::vector<float> rounded_vector(const Grid& grid, op::Weight& weight) {
  std::vector<float> out(static_cast<size_t>(weight.columns));
  quant::decode(weight.format->format(), weight.data.data(), weight.columns, out.data());
  for (float& x : out) x = static_cast<float>(nearest(grid, static_cast<double>(x)));
  weight.format = &quant::info(quant::Format::kF32);
  weight.data = std::as_bytes(std::span(out));
  return out;
}

const op::Op* producer_of_value(const op::Program& program, op::ValueId id) {
  for (const op::Op& op : program.ops)
    if (std::ranges::find(op.outputs, id) != op.outputs.end()) return &op;
  return nullptr;
}

// A part of a fused product is a product with some rows of its weight.
op::Op without_slice(const op::Program& program, const op::Op& op, int64_t width) {
  const auto* slice = std::get_if<op::Slice>(&op.what);
  if (slice == nullptr || program.value(op.inputs[0]).checkpoint) return op;
  const op::Op* whole = producer_of_value(program, op.inputs[0]);
  if (whole == nullptr || !std::holds_alternative<op::Linear>(whole->what)) return op;
  op::Op out = *whole;
  auto& linear = std::get<op::Linear>(out.what);
  const auto part = [&](op::Weight& weight, int64_t row_bytes) {
    weight.data = weight.data.subspan(static_cast<size_t>(slice->first * row_bytes),
                                      static_cast<size_t>(width * row_bytes));
  };
  // A bias of another type than plain numbers cannot be cut.
  if (linear.bias && linear.bias->format->block_values > 1) return op;
  part(linear.weight, linear.weight.row_bytes());
  linear.weight.rows = width;
  if (linear.bias) {
    part(*linear.bias, linear.bias->format->block_bytes);
    linear.bias->columns = width;
  }
  return out;
}

void softmax_by_table(const Grid& table, double sink, std::vector<double>& row) {
  const double largest = std::max(*std::ranges::max_element(row), sink);
  double sum = sink == exec::reference::kNoSink
                   ? 0
                   : nearest(table, std::exp(nearest(table, sink - largest)));
  for (double& x : row) sum += x = nearest(table, std::exp(nearest(table, x - largest)));
  for (double& x : row) x /= sum;
}

}  // namespace

std::optional<Matrix> PrecisionSample::read(const trace::Trace& trace, const op::Value& value,
                                            std::span<const int64_t> positions) const {
  if (!trace::in_checkpoints(used_, value.name)) return std::nullopt;
  Matrix out(std::ssize(positions), value.width);
  for (int64_t r = 0; r < out.rows; ++r) {
    const auto row = trace.row(value.name, positions[static_cast<size_t>(r)]);
    if (!row || row->lines != 1 || row->width < value.width) return std::nullopt;
    row->read(0, 0, value.width, out.row(r));
  }
  return out;
}

std::optional<PrecisionSample> PrecisionSample::take(
    const parity::Forward& forward, const trace::Trace& trace, std::span<const int32_t> tokens,
    std::string_view used, op::ValueId id, std::span<const int64_t> positions, int threads) {
  const op::Program& program = forward.program;
  PrecisionSample out;
  out.id_ = id;
  out.used_ = used;
  out.threads_ = threads;
  out.width_ = program.value(id).width;
  const op::Op* producer = producer_of_value(program, id);
  if (producer == nullptr) return std::nullopt;
  out.output_ =
      static_cast<size_t>(std::ranges::find(producer->outputs, id) - producer->outputs.begin());
  out.op_ = std::make_shared<const op::Op>(without_slice(program, *producer, out.width_));
  const auto* rope = std::get_if<op::Rope>(&out.op_->what);
  if (rope != nullptr && forward.early) return std::nullopt;  // one rope for each part of a trace
  out.positions_.assign(positions.begin(), positions.end());
  for (const int64_t p : positions) {
    if (p >= std::ssize(tokens)) return std::nullopt;
    out.tokens_.push_back(tokens[static_cast<size_t>(p)]);
  }
  if (std::holds_alternative<op::Attention>(out.op_->what)) {
    if (!out.take_attention(trace, program)) return std::nullopt;
    out.truth_ = out.evaluate({});
    if (out.attended_[0].probs.rows + out.attended_[0].scores.rows > 0)
      out.fused_truth_ = out.attention({}, true);
    return out;
  }
  for (const op::ValueId input : out.op_->inputs) {
    auto rows = out.read(trace, program.value(input), positions);
    if (!rows) return std::nullopt;
    out.inputs_.push_back(std::move(*rows));
  }
  auto recorded = out.read(trace, program.value(id), positions);
  if (!recorded) return std::nullopt;
  out.recorded_ = std::move(*recorded);
  if (const auto* linear = std::get_if<op::Linear>(&out.op_->what)) {
    const op::Weight& weight = linear->weight;
    const int64_t count = std::min(weight.rows, kMostColumns);
    for (int64_t c = 0; c < count; ++c) out.columns_.push_back(c * weight.rows / count);
    out.weights_ = Matrix(count, weight.columns);
    std::vector<float> row(static_cast<size_t>(weight.columns));
    std::vector<float> bias(static_cast<size_t>(weight.rows));
    if (linear->bias)
      quant::decode(linear->bias->format->format(), linear->bias->data.data(), weight.rows,
                    bias.data());
    Matrix some(out.recorded_.rows, count);
    for (int64_t c = 0; c < count; ++c) {
      const int64_t column = out.columns_[static_cast<size_t>(c)];
      quant::decode(weight.format->format(), weight.row(column), weight.columns, row.data());
      std::ranges::copy(row, out.weights_.row(c));
      out.bias_.push_back(static_cast<double>(bias[static_cast<size_t>(column)]));
      for (int64_t r = 0; r < some.rows; ++r) some.row(r)[c] = out.recorded_.row(r)[column];
    }
    out.recorded_ = std::move(some);
    // Where a whole tensor shares a scale, it is that of the step.
    for (const int64_t position : positions) {
      double largest = 0;
      for (const trace::StepInfo& step : trace.manifest().steps) {
        if (position < step.first_position || position >= step.first_position + step.tokens)
          continue;
        for (int64_t p = step.first_position; p < step.first_position + step.tokens; ++p) {
          const auto rows = out.read(trace, program.value(out.op_->inputs[0]), {&p, 1});
          if (!rows) continue;
          for (const double x : rows->values) largest = std::max(largest, std::fabs(x));
        }
      }
      out.largest_.push_back(largest);
    }
  }
  out.truth_ = out.evaluate({});
  return out;
}

bool PrecisionSample::take_attention(const trace::Trace& trace, const op::Program& program) {
  const auto& attention = std::get<op::Attention>(op_->what);
  std::vector<std::vector<double>> rows;
  std::vector<int64_t> kept;
  for (const int64_t position : positions_) {
    if (position >= kMostKeys) continue;
    std::vector<int64_t> seen;
    for (int64_t p = 0; p <= position; ++p) seen.push_back(p);
    auto q = read(trace, program.value(op_->inputs[0]), {&position, 1});
    auto k = read(trace, program.value(op_->inputs[1]), seen);
    auto v = read(trace, program.value(op_->inputs[2]), seen);
    if (!q || !k || !v) continue;
    const auto lines = [&](size_t output) {
      Matrix out;
      const op::Value& value = program.value(op_->outputs[output]);
      if (!trace::in_checkpoints(used_, value.name)) return out;
      const auto row = trace.row(value.name, position);
      if (!row || row->lines != attention.heads || row->width <= position) return out;
      out = Matrix(attention.heads, position + 1);
      for (int64_t head = 0; head < attention.heads; ++head)
        row->read(head, 0, position + 1, out.row(head));
      return out;
    };
    if (output_ > 0) {
      rows.push_back(lines(output_).values);
    } else {
      const auto mix = read(trace, program.value(id_), {&position, 1});
      rows.push_back(mix ? mix->values : std::vector<double>());
    }
    if (rows.back().empty()) {
      rows.pop_back();
      continue;
    }
    attended_.push_back({std::move(*q), std::move(*k), std::move(*v),
                         output_ == 2 ? lines(1) : Matrix(), output_ == 0 ? lines(2) : Matrix()});
    kept.push_back(position);
  }
  if (kept.empty()) return false;
  positions_ = kept;
  size_t widest = 0;
  for (const auto& row : rows) widest = std::max(widest, row.size());
  recorded_ = Matrix(std::ssize(rows), static_cast<int64_t>(widest));
  std::ranges::fill(recorded_.values, kNothing);
  for (size_t r = 0; r < rows.size(); ++r)
    std::ranges::copy(rows[r], recorded_.row(static_cast<int64_t>(r)));
  return true;
}

bool PrecisionSample::has_float_weights() const {
  const auto* linear = std::get_if<op::Linear>(&op_->what);
  return linear != nullptr && linear->weight.format->block_values == 1;
}

Matrix PrecisionSample::evaluate(const Coarse& coarse) const {
  if (std::holds_alternative<op::Linear>(op_->what)) return linear(coarse);
  if (std::holds_alternative<op::Attention>(op_->what)) return attention(coarse, false);
  if (coarse.table != nullptr) return activation(coarse);
  return others(coarse);
}

Matrix PrecisionSample::linear(const Coarse& coarse) const {
  Matrix x = inputs_[0];
  Matrix w = weights_;
  round_matrix(coarse.inputs, x, largest_);
  round_matrix(coarse.weights, w);
  std::vector<double> bias = bias_;
  if (coarse.vectors != nullptr) round_row(*coarse.vectors, bias, 0);
  Matrix out(x.rows, w.rows);
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t c = 0; c < w.rows; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < x.columns; ++i) sum += w.row(c)[i] * x.row(r)[i];
      out.row(r)[c] = sum + bias[static_cast<size_t>(c)];
    }
  return out;
}

Matrix PrecisionSample::attention(const Coarse& coarse, bool fused) const {
  const auto& what = std::get<op::Attention>(op_->what);
  Matrix out(recorded_.rows, recorded_.columns);
  std::ranges::fill(out.values, kNothing);
  const int64_t group = what.heads / what.kv_heads;
  const std::vector<double> sinks = exec::reference::sinks_of(what);
  for (size_t a = 0; a < attended_.size(); ++a) {
    Attended seen = attended_[a];
    round_matrix(coarse.inputs, seen.q);
    round_matrix(coarse.keys, seen.k);
    round_matrix(coarse.values, seen.v);
    const int64_t position = positions_[a];
    double* const result = out.row(static_cast<int64_t>(a));
    for (int64_t head = 0; head < what.heads; ++head) {
      std::vector<double> row(static_cast<size_t>(position) + 1);
      exec::reference::score_row(what, seen.q.row(0) + head * what.head_size, seen.k, head / group,
                                 position, row);
      if (output_ == 1) {
        for (size_t p = 0; p < row.size(); ++p)
          if (std::isfinite(row[p]))
            result[head * std::ssize(row) + static_cast<int64_t>(p)] = row[p];
        continue;
      }
      if (seen.scores.rows > 0 && !fused)
        for (size_t p = 0; p < row.size(); ++p)
          if (std::isfinite(row[p])) row[p] = seen.scores.row(head)[p];
      if (coarse.table != nullptr)
        softmax_by_table(*coarse.table, sinks[static_cast<size_t>(head)], row);
      else
        exec::reference::softmax(row, sinks[static_cast<size_t>(head)]);
      if (output_ == 2) {
        std::ranges::copy(row, result + head * std::ssize(row));
        continue;
      }
      if (seen.probs.rows > 0 && !fused) std::copy_n(seen.probs.row(head), row.size(), row.begin());
      if (coarse.inputs != nullptr && coarse.inputs->plain()) round_row(*coarse.inputs, row, 1);
      exec::reference::mix_row(what, row, seen.v, head / group, result + head * what.value_size);
    }
  }
  return out;
}

// A table of a function has the numbers of a coarse type on both sides. llama.cpp leaves GELU's
// table beyond 10.
Matrix PrecisionSample::activation(const Coarse& coarse) const {
  const op::Activate::Kind kind = std::get<op::Activate>(op_->what).kind;
  Matrix out = inputs_[0];
  for (size_t i = 0; i < out.values.size(); ++i) {
    double& x = out.values[i];
    const bool gelu = kind == op::Activate::Kind::kGeluTanh || kind == op::Activate::Kind::kGeluErf;
    const bool ends = gelu && std::fabs(x) >= 10;
    if (ends)
      x = x > 0 ? x : 0;
    else
      x = nearest(*coarse.table, op::activated(kind, nearest(*coarse.table, x)));
    if (inputs_.size() > 1) x *= op::factor_of_gate(kind, inputs_[1].values[i]);
  }
  return out;
}

Matrix PrecisionSample::others(const Coarse& coarse) const {
  std::vector<Matrix> rounded = inputs_;
  std::vector<const Matrix*> in;
  for (Matrix& input : rounded) {
    round_matrix(coarse.inputs, input);
    in.push_back(&input);
  }
  op::What what = op_->what;
  auto* norm = std::get_if<op::Norm>(&what);
  if (norm == nullptr || coarse.vectors == nullptr)
    return exec::f64::evaluate(what, in, width_, {tokens_, positions_}, threads_);
  std::vector<float> weight = rounded_vector(*coarse.vectors, norm->weight);
  std::vector<float> bias;
  if (norm->bias) bias = rounded_vector(*coarse.vectors, *norm->bias);
  return exec::f64::evaluate(what, in, width_, {tokens_, positions_}, threads_);
}

}  // namespace lockstep::doctor
