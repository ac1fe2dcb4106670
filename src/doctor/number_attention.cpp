// Numbers of rotations and of attention, worked out.
#include <algorithm>
#include <cmath>

#include "doctor/number_worker.h"
#include "op/rope.h"

namespace lockstep::doctor {

void NumberWorker::work(const op::Rope& late) {
  const bool early = forward_.early && parity::step_end(trace_, position_) <= forward_.early_end;
  const op::Rope& rope = early ? std::get<op::Rope>(forward_.early->ops[index_].what) : late;
  const int64_t inside = column_ % rope.head_size;
  const int64_t head = column_ - inside;
  if (inside >= rope.dims) {
    out_.value = part(0, column_);
    right_ = indexed(name_of(0), column_);
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
  right_ = fmt::format("{} {}(w) {} {} {}(w), w = {} · {:.6g}", indexed(name_of(0), a),
                       first ? "cos" : "sin", first ? "-" : "+", indexed(name_of(0), b),
                       first ? "sin" : "cos", counted, frequency);
  if (magnitude != 1) right_ = fmt::format("{:g} · ({})", magnitude, right_);
}

int64_t NumberWorker::kv_head(const op::Attention& attention, int64_t head) const {
  return deviation_.kv_head ? deviation_.kv_head(head)
                            : head / (attention.heads / attention.kv_heads);
}

void NumberWorker::work(const op::Attention& attention) {
  if (id_ == op_.outputs[0])
    work_mix(attention);
  else if (id_ == op_.outputs[1])
    work_score(attention);
  else
    work_probability(attention);
}

void NumberWorker::work_score(const op::Attention& attention) {
  const int64_t keys = columns_ / attention.heads;
  const int64_t head = column_ / keys;
  const int64_t key = column_ % keys;
  if (std::isfinite(deviation_.hidden) && !deviation_.sees(position_, key)) {
    out_.value = deviation_.hidden;
    right_ = fmt::format("{:g}, as the key is out of sight", deviation_.hidden);
    part("score of a key out of sight", deviation_.hidden);
    return;
  }
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
std::vector<double> NumberWorker::line(size_t output, int64_t head, int64_t heads) {
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

void NumberWorker::work_probability(const op::Attention& attention) {
  const int64_t heads = program_.value(id_).width;
  const int64_t keys = columns_ / heads;
  const int64_t head = column_ / keys;
  const auto key = static_cast<size_t>(column_ % keys);
  const auto scores = line(1, head, heads);
  if (failed_ || key >= scores.size()) return;
  const double sink = exec::reference::sinks_of(attention)[static_cast<size_t>(head)];
  const bool has_sink = sink != exec::reference::kNoSink;
  const double largest = std::max(*std::ranges::max_element(scores), sink);
  double sum = has_sink ? std::exp(sink - largest) : 0;
  for (const double score : scores) sum += std::exp(score - largest);
  const std::string& name = program_.value(op_.outputs[1]).name;
  part(fmt::format("{}[head {}, key {}]", name, head, key), scores[key]);
  part("largest score", largest);
  const char* const keys_and_sink = has_sink ? "keys and sink" : "keys";
  if (has_sink) part(fmt::format("sink of head {}", head), sink);
  part(fmt::format("sum over {} of exp(score - largest)", keys_and_sink), sum);
  out_.value = std::exp(scores[key] - largest) / sum;
  right_ = fmt::format("exp({}[head {}, key {}] - largest) / sum over {} of exp(score - largest)",
                       name, head, key, keys_and_sink);
}

void NumberWorker::work_mix(const op::Attention& attention) {
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
                         said_of(2, other, read_from(2, key), -2), v[static_cast<size_t>(other)]));
  }
  add_terms(std::move(terms));
  right_ =
      fmt::format("sum over keys of {}[head {}, key] · {}", name, head, indexed(name_of(2), other));
}

}  // namespace lockstep::doctor
