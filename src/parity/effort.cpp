#include "parity/effort.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/random.h"
#include "exec/f64/products.h"

namespace lockstep::parity {
namespace {

// Ops other than products cost about as much as this many multiply-adds a number.
constexpr double kOfANumber = 500;
// A product is evaluated, and what rounding does to it is estimated; decoding and the rest come to
// that. Measured: as much as so many plain products.
constexpr double kTimesAProduct = 5;

// A score, its share and what it adds to the mix, for each number of a head.
constexpr double kOfAScore = 25;

// `keys`: that a position sees on average.
double effort_of_op(const op::Op& op, const op::Program& program, double keys) {
  const auto width = static_cast<double>(program.value(op.outputs[0]).width);
  if (const auto* linear = std::get_if<op::Linear>(&op.what))
    return static_cast<double>(linear->weight.rows) * static_cast<double>(linear->weight.columns);
  if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what))
    return width * static_cast<double>(experts->weight.columns);
  if (const auto* attention = std::get_if<op::Attention>(&op.what)) {
    const double seen =
        attention->window > 0 ? std::min(keys, static_cast<double>(attention->window)) : keys;
    return kOfAScore * seen * static_cast<double>(attention->heads * attention->head_size);
  }
  return kOfANumber * width;
}

// Calls f(op) for the op that makes a value, and those whose results it needs and the trace lacks.
template <class F>
void for_each_replayed(const op::Program& program, const trace::Trace& trace, op::ValueId id,
                       const F& f) {
  std::vector<const op::Op*> producer(program.values.size());
  for (const op::Op& op : program.ops)
    for (const op::ValueId output : op.outputs) producer[static_cast<size_t>(output)] = &op;
  std::vector<bool> seen(program.values.size());
  std::vector<op::ValueId> open = {id};
  while (!open.empty()) {
    const op::Op& op = *producer[static_cast<size_t>(open.back())];
    open.pop_back();
    f(op);
    for (const op::ValueId input : op.inputs) {
      if (seen[static_cast<size_t>(input)] || trace.has(program.value(input).name)) continue;
      seen[static_cast<size_t>(input)] = true;
      open.push_back(input);
    }
  }
}

// Of this machine, now.
double products_a_second(int threads) {
  constexpr int64_t kRows = 512;
  constexpr int64_t kColumns = 2048;
  constexpr int64_t kPositions = 48;
  Random random(1);
  std::vector<float> numbers(static_cast<size_t>(kRows * kColumns));
  for (float& number : numbers) number = static_cast<float>(random.uniform());
  const op::Weight weight{"", &quant::info(quant::Format::kF32), kRows, kColumns,
                          std::as_bytes(std::span(numbers))};
  exec::reference::Matrix x(kPositions, kColumns);
  for (double& number : x.values)
    number = static_cast<double>(static_cast<float>(random.uniform()));
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto started = std::chrono::steady_clock::now();
    exec::f64::multiply(weight, x, threads);
    least = std::min(
        least, std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  }
  return static_cast<double>(kRows * kColumns * kPositions) / least;
}

}  // namespace

double effort_of(const op::Program& program, const trace::Trace& trace, op::ValueId id) {
  const double keys = static_cast<double>(trace.positions()) / 2;
  double effort = 0;
  for_each_replayed(program, trace, id,
                    [&](const op::Op& op) { effort += effort_of_op(op, program, keys); });
  return effort;
}

double bytes_of(const op::Program& program, const trace::Trace& trace, op::ValueId id) {
  const auto positions = static_cast<double>(trace.positions());
  double bytes = 0;
  for_each_replayed(program, trace, id, [&](const op::Op& op) {
    if (const auto* linear = std::get_if<op::Linear>(&op.what))
      bytes += static_cast<double>(linear->weight.data.size());
    if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what))
      bytes += static_cast<double>(experts->weight.data.size());
    for (const auto& values : {op.inputs, op.outputs})
      for (const op::ValueId value : values) {
        const auto* recorded = trace.checkpoint(program.value(value).name);
        if (recorded == nullptr) continue;
        const bool scores = program.value(value).shape == op::Value::Shape::kScores;
        bytes += positions * (scores ? positions : 1) *
                 static_cast<double>(program.value(value).width * size_bytes(recorded->dtype));
      }
  });
  return bytes;
}

int64_t positions_within(double seconds, const op::Program& program, int64_t positions,
                         int threads) {
  double of_position = 0;
  for (const op::Op& op : program.ops)
    of_position += effort_of_op(op, program, static_cast<double>(positions) / 2);
  return static_cast<int64_t>(seconds * products_a_second(threads) /
                              (2 * kTimesAProduct * of_position));
}

}  // namespace lockstep::parity
