// One number at a time: what an op makes it of, with names (worked_out.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "doctor/worked_out.h"
#include "op/head_parts.h"

namespace lockstep::doctor {

// The op that computes a value, by index.
size_t producer_index(const op::Program& program, op::ValueId id);

inline std::string indexed(const std::string& name, int64_t index) {
  return fmt::format("{}[{}]", name, index);
}

class NumberWorker {
 public:
  NumberWorker(parity::Replay& replay, const parity::Forward& forward, const trace::Trace& trace,
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

  Working run();

 private:
  static constexpr size_t kTermsShown = 5;
  static constexpr int64_t kZeros = op::Deviation::kZeros;

  bool of_scores() const { return program_.value(id_).shape == op::Value::Shape::kScores; }

  std::string name_of_result() const {
    const std::string& name = program_.value(id_).name;
    if (!of_scores()) return indexed(name, column_);
    const int64_t keys = columns_ / program_.value(id_).width;
    return fmt::format("{}[head {}, key {}]", name, column_ / keys, column_ % keys);
  }

  const std::string& name_of(size_t input) const { return program_.value(op_.inputs[input]).name; }

  // The position whose row of an input is read.
  int64_t read_from(size_t input, int64_t position) const {
    return deviation_.reads ? deviation_.reads(input, position) : position;
  }

  std::string said_of(size_t input, int64_t index, int64_t position, int64_t own) const {
    const std::string name = indexed(name_of(input), index);
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
    if (deviation_.takes) deviation_.takes(input, out);
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

  void work_row();
  void work(const op::Linear& linear);
  void work(const op::Norm& norm);
  void work(const op::Embed& embed);
  void work(const op::Activate& activate);
  void work(const op::Rope& late);
  int64_t kv_head(const op::Attention& attention, int64_t head) const;
  void work(const op::Attention& attention);
  void work_score(const op::Attention& attention);
  // Of scores or probabilities: one head of the position's row.
  std::vector<double> line(size_t output, int64_t head, int64_t heads);
  void work_probability(const op::Attention& attention);
  void work_mix(const op::Attention& attention);

  void work(const op::Slice& slice) {
    out_.value = part(0, slice.first + column_);
    right_ = indexed(name_of(0), slice.first + column_);
  }

  void work(const op::HeadParts& parts) {
    const auto width = [&](size_t input) {
      return input < op_.inputs.size() ? program_.value(op_.inputs[input]).width : 0;
    };
    const op::HeadPlace from =
        op::place_in_heads(parts, width(0), width(1), program_.value(id_).width, column_);
    out_.value = part(from.input, from.column);
    right_ = indexed(name_of(from.input), from.column);
  }

  void work(const op::Add&) {
    out_.value = part(0, column_);
    out_.value += part(1, column_);
    right_ = indexed(name_of(0), column_) + " + " + indexed(name_of(1), column_);
  }

  void work(const op::Scale& scale) {
    out_.value = scale.factor * part(0, column_);
    right_ = scale.factor == 1
                 ? indexed(name_of(0), column_)
                 : fmt::format("{:g} · {}", scale.factor, indexed(name_of(0), column_));
  }

  void work(const op::SoftCap& soft) {
    out_.value = soft.cap * std::tanh(part(0, column_) / soft.cap);
    right_ = fmt::format("{0:g} · tanh({1} / {0:g})", soft.cap, indexed(name_of(0), column_));
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

}  // namespace lockstep::doctor
