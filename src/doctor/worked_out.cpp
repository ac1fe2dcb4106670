#include "doctor/worked_out.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "doctor/alterations.h"
#include "op/rope.h"
#include "quant/decode.h"

namespace lockstep::doctor {
namespace {

constexpr size_t kTermsShown = 5;
constexpr int64_t kZeros = op::Deviation::kZeros;

size_t producer_index(const op::Program& program, op::ValueId id) {
  const auto at = std::ranges::find_if(program.ops, [&](const op::Op& op) {
    return std::ranges::find(op.outputs, id) != op.outputs.end();
  });
  return static_cast<size_t>(at - program.ops.begin());
}

std::vector<float> row_of_weight(const op::Weight& weight, int64_t row) {
  std::vector<float> out(static_cast<size_t>(weight.columns));
  quant::decode(weight.format->format(), weight.row(row), weight.columns, out.data());
  return out;
}

// A number of a weight that is one row.
double number_of(const op::Weight& weight, int64_t column) {
  return static_cast<double>(row_of_weight(weight, 0)[static_cast<size_t>(column)]);
}

std::string at(const std::string& name, int64_t index) {
  return fmt::format("{}[{}]", name, index);
}

class Worker {
 public:
  Worker(parity::Replay& replay, const parity::Forward& forward, const trace::Trace& trace,
         std::span<const int32_t> tokens, op::ValueId id, int64_t position, int64_t column,
         int64_t columns)
      : replay_(replay),
        forward_(forward),
        program_(forward.program),
        trace_(trace),
        tokens_(tokens),
        index_(producer_index(program_, id)),
        op_(program_.ops[index_]),
        id_(id),
        position_(position),
        column_(column),
        columns_(columns) {
    if (const auto found = forward.deviations.find(index_); found != forward.deviations.end())
      deviation_ = found->second;
  }

  Working run() {
    const std::string left = name_of_result();
    if (deviation_.result_of) position_ = deviation_.result_of(position_);
    if (!deviation_.columns.empty() && op_.outputs[0] == id_)
      column_ = deviation_.columns[static_cast<size_t>(column_)];
    if (column_ == kZeros) {
      out_.formula = left + " = 0";
      return out_;
    }
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
    out_.formula = fmt::format("{} = {}", left, right_);
    return out_;
  }

 private:
  bool of_scores() const { return program_.value(id_).shape == op::Value::Shape::kScores; }

  std::string name_of_result() const {
    const std::string& name = program_.value(id_).name;
    if (!of_scores()) return at(name, column_);
    const int64_t keys = columns_ / program_.value(id_).width;
    return fmt::format("{}[head {}, key {}]", name, column_ / keys, column_ % keys);
  }

  const std::string& name_of(size_t input) const { return program_.value(op_.inputs[input]).name; }

  // The position whose row of an input is read.
  int64_t read_from(size_t input, int64_t position) const {
    return deviation_.reads ? deviation_.reads(input, position) : position;
  }

  std::string said_of(size_t input, int64_t index, int64_t position, int64_t own) const {
    const std::string name = at(name_of(input), index);
    if (position == kZeros) return name + " (zeros)";
    return position == own ? name : fmt::format("{} of position {}", name, position);
  }

  // A row of an input, as the op reads it.
  std::vector<double> row(size_t input, int64_t position) {
    const int64_t from = read_from(input, position);
    const int64_t width = program_.value(op_.inputs[input]).width;
    std::vector<double> out(static_cast<size_t>(width));
    if (from == kZeros) return out;
    const auto rows = replay_.known_rows(op_.inputs[input], {&from, 1});
    if (!rows || rows->columns < width) {
      failed_ = true;
      return out;
    }
    std::copy_n(rows->row(0), width, out.begin());
    return out;
  }

  int64_t input_column(int64_t column) const {
    return deviation_.input_columns.empty() ? column
                                            : deviation_.input_columns[static_cast<size_t>(column)];
  }

  // One number of an input, with its name as a part.
  double part(size_t input, int64_t column) {
    const int64_t from = input == 0 ? input_column(column) : column;
    const double value = from == kZeros ? 0.0 : row(input, position_)[static_cast<size_t>(from)];
    const std::string name =
        said_of(input, std::max<int64_t>(0, from), read_from(input, position_), position_);
    out_.parts.push_back({name, value});
    return value;
  }

  void part(const std::string& name, double value) { out_.parts.push_back({name, value}); }

  void add_terms(std::vector<Working::Part> terms) {
    std::ranges::stable_sort(terms, std::ranges::greater(),
                             [](const Working::Part& term) { return std::fabs(term.value); });
    for (size_t i = 0; i < terms.size(); ++i) {
      out_.value += terms[i].value;
      if (i < kTermsShown) {
        out_.parts.push_back(std::move(terms[i]));
      } else {
        ++out_.others;
        out_.others_sum += terms[i].value;
      }
    }
  }

  static Working::Part term(const std::string& a, double x, const std::string& b, double y) {
    return {fmt::format("{} · {}", a, b), x * y, {x, y}};
  }

  void work(const op::Linear& linear) {
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
    right_ =
        fmt::format("sum over i of {}[{}, i] · {}[i]", linear.weight.name, column_, name_of(0));
    if (!linear.bias) return;
    right_ += fmt::format(" + {}", at(linear.bias->name, column_));
    part(at(linear.bias->name, column_), number_of(*linear.bias, column_));
    out_.value += out_.parts.back().value;
  }

  void work(const op::Norm& norm) {
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
    part(at(norm.weight.name, of_weight), number_of(norm.weight, of_weight));
    out_.value = (layer ? number - mean : number) / std::sqrt(squares + norm.epsilon) *
                 out_.parts.back().value;
    right_ = fmt::format(
        "{} / sqrt({} + epsilon) · {}",
        layer ? fmt::format("({} - mean)", at(name_of(0), column_)) : at(name_of(0), column_),
        layer ? "variance" : "mean of squares", at(norm.weight.name, of_weight));
    if (!norm.bias) return;
    right_ += fmt::format(" + {}", at(norm.bias->name, of_weight));
    part(at(norm.bias->name, of_weight), number_of(*norm.bias, of_weight));
    out_.value += out_.parts.back().value;
  }

  void work(const op::Embed& embed) {
    int64_t index = deviation_.position ? deviation_.position(position_) : position_;
    const bool by_token = embed.index == op::Embed::Index::kToken;
    if (by_token) {
      const int64_t owner = read_from(0, position_);
      if (owner < 0 || owner >= std::ssize(tokens_)) return;
      const int64_t rows = embed.table.rows;
      index =
          ((tokens_[static_cast<size_t>(owner)] + deviation_.token_offset) % rows + rows) % rows;
    }
    if (index < 0 || index >= embed.table.rows) return;
    right_ = fmt::format("{}[{} {}, {}]", embed.table.name, by_token ? "token" : "position", index,
                         column_);
    out_.value =
        static_cast<double>(row_of_weight(embed.table, index)[static_cast<size_t>(column_)]);
    part(right_, out_.value);
  }

  void work(const op::Slice& slice) {
    out_.value = part(0, slice.first + column_);
    right_ = at(name_of(0), slice.first + column_);
  }

  void work(const op::Rope& late) {
    const bool early = forward_.early && parity::step_end(trace_, position_) <= forward_.early_end;
    const op::Rope& rope = early ? std::get<op::Rope>(forward_.early->ops[index_].what) : late;
    const int64_t inside = column_ % rope.head_size;
    const int64_t head = column_ - inside;
    if (inside >= rope.dims) {
      out_.value = part(0, column_);
      right_ = at(name_of(0), column_);
      return;
    }
    const bool halves = rope.pairing == op::Rope::Pairing::kHalves;
    const int64_t pair = halves ? inside % (rope.dims / 2) : inside / 2;
    const int64_t a = head + (halves ? pair : 2 * pair);
    const int64_t b = halves ? a + rope.dims / 2 : a + 1;
    const int64_t counted = deviation_.position ? deviation_.position(position_) : position_;
    const double frequency = op::rope_frequencies(rope)[static_cast<size_t>(pair)];
    const double w = static_cast<double>(counted) * frequency;
    const double x = part(0, a);
    const double y = part(0, b);
    part("position", static_cast<double>(counted));
    part(fmt::format("frequency of pair {}", pair), frequency);
    const double magnitude = op::rope_magnitude(rope);
    const bool first = column_ == a;
    out_.value =
        magnitude * (first ? x * std::cos(w) - y * std::sin(w) : x * std::sin(w) + y * std::cos(w));
    right_ = fmt::format("{} {}(w) {} {} {}(w), w = {} · {:.6g}", at(name_of(0), a),
                         first ? "cos" : "sin", first ? "-" : "+", at(name_of(0), b),
                         first ? "sin" : "cos", counted, frequency);
    if (magnitude != 1) right_ = fmt::format("{:g} · ({})", magnitude, right_);
  }

  int64_t kv_head(const op::Attention& attention, int64_t head) const {
    return deviation_.kv_head ? deviation_.kv_head(head)
                              : head / (attention.heads / attention.kv_heads);
  }

  void work(const op::Attention& attention) {
    if (id_ == op_.outputs[0])
      work_mix(attention);
    else if (id_ == op_.outputs[1])
      work_score(attention);
    else
      work_probability();
  }

  void work_score(const op::Attention& attention) {
    const int64_t keys = columns_ / attention.heads;
    const int64_t head = column_ / keys;
    const int64_t key = column_ % keys;
    const int64_t first = head * attention.head_size;
    const int64_t other = kv_head(attention, head) * attention.head_size;
    const auto q = row(0, position_);
    const auto k = row(1, key);
    if (failed_) return;
    std::vector<Working::Part> terms;
    for (int64_t d = 0; d < attention.head_size; ++d)
      terms.push_back(term(said_of(0, first + d, read_from(0, position_), position_),
                           q[static_cast<size_t>(first + d)],
                           said_of(1, other + d, read_from(1, key), -2),
                           k[static_cast<size_t>(other + d)]));
    add_terms(std::move(terms));
    out_.value *= attention.scale;
    right_ = fmt::format("{:.6g} · sum over i of {}[{} + i] · {}[{} + i] of position {}",
                         attention.scale, name_of(0), first, name_of(1), other, key);
    if (attention.soft_cap > 0) {
      right_ = fmt::format("{0:g} · tanh({1} / {0:g})", attention.soft_cap, right_);
      out_.value = attention.soft_cap * std::tanh(out_.value / attention.soft_cap);
    }
    part("scale", attention.scale);
  }

  // Of scores or probabilities: one head of the position's row.
  std::vector<double> line(size_t output, int64_t head, int64_t heads) {
    std::vector<int64_t> positions = {position_};
    // A row has as many keys as the last that is asked for.
    if (const int64_t last = parity::step_end(trace_, position_) - 1;
        deviation_.sees && last > position_)
      positions.push_back(last);
    const auto rows = replay_.known_rows(op_.outputs[output], positions);
    if (!rows || rows->columns % heads != 0) {
      failed_ = true;
      return {};
    }
    const int64_t keys = rows->columns / heads;
    return {rows->row(0) + head * keys, rows->row(0) + (head + 1) * keys};
  }

  void work_probability() {
    const int64_t heads = program_.value(id_).width;
    const int64_t keys = columns_ / heads;
    const int64_t head = column_ / keys;
    const auto key = static_cast<size_t>(column_ % keys);
    const auto scores = line(1, head, heads);
    if (failed_ || key >= scores.size()) return;
    const double largest = *std::ranges::max_element(scores);
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - largest);
    const std::string& name = program_.value(op_.outputs[1]).name;
    part(fmt::format("{}[head {}, key {}]", name, head, key), scores[key]);
    part("largest score", largest);
    part("sum over keys of exp(score - largest)", sum);
    out_.value = std::exp(scores[key] - largest) / sum;
    right_ =
        fmt::format("exp({}[head {}, key {}] - largest) / sum over keys of exp(score - largest)",
                    name, head, key);
  }

  void work_mix(const op::Attention& attention) {
    const int64_t head = column_ / attention.value_size;
    const int64_t other =
        kv_head(attention, head) * attention.value_size + column_ % attention.value_size;
    const auto probs = line(2, head, attention.heads);
    if (failed_) return;
    const std::string& name = program_.value(op_.outputs[2]).name;
    std::vector<Working::Part> terms;
    for (int64_t key = 0; key < std::ssize(probs); ++key) {
      const double weight = probs[static_cast<size_t>(key)];
      if (weight == 0) continue;
      const auto v = row(2, key);
      if (failed_) return;
      terms.push_back(term(fmt::format("{}[head {}, key {}]", name, head, key), weight,
                           said_of(2, other, read_from(2, key), -2),
                           v[static_cast<size_t>(other)]));
    }
    add_terms(std::move(terms));
    right_ =
        fmt::format("sum over keys of {}[head {}, key] · {}", name, head, at(name_of(2), other));
  }

  void work(const op::Activate& activate) {
    static constexpr const char* kNames[] = {"silu", "gelu_tanh", "gelu_erf"};
    const double x = part(0, column_);
    const std::string name = deviation_.function ? "f" : kNames[static_cast<size_t>(activate.kind)];
    right_ = fmt::format("{}({})", name, at(name_of(0), column_));
    out_.value = deviation_.function ? deviation_.function(x) : function_of(activate.kind, x);
    part(right_, out_.value);
    if (op_.inputs.size() < 2) return;
    out_.value *= part(1, column_);
    right_ += " · " + at(name_of(1), column_);
  }

  void work(const op::Add&) {
    out_.value = part(0, column_) + part(1, column_);
    right_ = at(name_of(0), column_) + " + " + at(name_of(1), column_);
  }

  void work(const op::Scale& scale) {
    out_.value = scale.factor * part(0, column_);
    right_ = scale.factor == 1 ? at(name_of(0), column_)
                               : fmt::format("{:g} · {}", scale.factor, at(name_of(0), column_));
  }

  void work(const op::SoftCap& soft) {
    out_.value = soft.cap * std::tanh(part(0, column_) / soft.cap);
    right_ = fmt::format("{0:g} · tanh({1} / {0:g})", soft.cap, at(name_of(0), column_));
  }

  // An op that has no formula here.
  template <class What>
  void work(const What&) {}

  parity::Replay& replay_;
  const parity::Forward& forward_;
  const op::Program& program_;
  const trace::Trace& trace_;
  std::span<const int32_t> tokens_;
  const size_t index_;
  const op::Op& op_;
  const op::ValueId id_;
  int64_t position_;
  int64_t column_;
  const int64_t columns_;
  op::Deviation deviation_;
  std::string right_;
  bool failed_ = false;  // a number cannot be had
  Working out_;
};

}  // namespace

double function_of(op::Activate::Kind kind, double x) {
  switch (kind) {
    case op::Activate::Kind::kSilu:
      return x / (1 + std::exp(-x));
    case op::Activate::Kind::kGeluTanh:
      return x / 2 *
             (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case op::Activate::Kind::kGeluErf:
      break;
  }
  return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
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
  return Worker(replay, forward, trace, tokens, id, position, column, columns).run();
}

}  // namespace lockstep::doctor
