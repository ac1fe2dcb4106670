// Norms, rotations and activations by another formula.
#include <cmath>

#include "doctor/alterations.h"
#include "doctor/worked_out.h"
#include "op/rope.h"

namespace lockstep::doctor {
namespace {

using InputRows = op::Deviation::InputRows;

std::vector<double> as_doubles(const std::vector<float>& numbers) {
  return {numbers.begin(), numbers.end()};
}

NormGroup look_at(std::span<const double> x, double epsilon) {
  NormGroup out{static_cast<double>(x.size()), 0, 0, 0, epsilon};
  for (const double each : x) out.mean += each / out.count;
  for (const double each : x) {
    out.squares += each * each / out.count;
    out.variance += (each - out.mean) * (each - out.mean) / out.count;
  }
  return out;
}

// One pair of a head: where its numbers lie, and the pairs whose frequencies each of them has.
struct Turn {
  int64_t first;
  int64_t second;
  int64_t pair_of_first;
  int64_t pair_of_second;
};

// The op as it is: altered before, maybe.
const op::Rope* rope_at(Altered& altered, size_t op) {
  // Ropes that change with the positions have two programs, and a row is made by one.
  if (altered.forward().early) return nullptr;
  const auto* rope = std::get_if<op::Rope>(&altered.op(op).what);
  return rope != nullptr && rope->dims >= 2 ? rope : nullptr;
}

Turn turn_of(const op::Rope& rope, int64_t pair) {
  const int64_t half = rope.dims / 2;
  if (rope.pairing == op::Rope::Pairing::kAdjacent) return {2 * pair, 2 * pair + 1, pair, pair};
  return {pair, pair + half, pair, pair};
}

// `pairs` at each head, from `start` on.
void rotate_rows(
    Altered& altered, size_t op, const op::Rope& rope, const std::vector<Turn>& turns,
    int64_t start, const PairFormula& formula, const std::string& words,
    const std::function<double(double)>& angle_of = [](double angle) { return angle; }) {
  op::Deviation& deviation = altered.deviation(op);
  deviation.formula = words;
  deviation.row = [=, frequencies = op::rope_frequencies(rope),
                   magnitude = op::rope_magnitude(rope)](InputRows inputs, int64_t position,
                                                         std::span<double> result) {
    std::ranges::copy(inputs[0], result.begin());
    for (int64_t head = start; head < std::ssize(result); head += rope.head_size)
      for (const Turn& turn : turns) {
        const double x = inputs[0][static_cast<size_t>(head + turn.first)];
        const double y = inputs[0][static_cast<size_t>(head + turn.second)];
        const auto turned = [&](int64_t pair) {
          const double angle =
              angle_of(static_cast<double>(position) * frequencies[static_cast<size_t>(pair)]);
          return formula(x, y, magnitude * std::cos(angle), magnitude * std::sin(angle));
        };
        result[static_cast<size_t>(head + turn.first)] = turned(turn.pair_of_first).first;
        result[static_cast<size_t>(head + turn.second)] = turned(turn.pair_of_second).second;
      }
  };
}

std::pair<double, double> rotated(double x, double y, double cosine, double sine) {
  return {x * cosine - y * sine, x * sine + y * cosine};
}

}  // namespace

Alteration norm_formula(NormFormula formula, std::string words) {
  return [formula = std::move(formula), words = std::move(words)](Altered& altered, size_t op) {
    const auto* norm = std::get_if<op::Norm>(&altered.op(op).what);
    if (norm == nullptr) return false;
    const std::vector<double> weight = as_doubles(decode(norm->weight));
    const auto bias =
        norm->bias ? as_doubles(decode(*norm->bias)) : std::vector<double>(weight.size());
    op::Deviation& deviation = altered.deviation(op);
    deviation.formula = words;
    deviation.row = [formula, weight, bias, norm = *norm](InputRows inputs, int64_t,
                                                          std::span<double> result) {
      const auto count = static_cast<size_t>(norm.group);
      for (size_t first = 0; first < result.size(); first += count) {
        const auto x = inputs[0].subspan(first, count);
        const NormGroup group = look_at(x, norm.epsilon);
        const auto start = static_cast<size_t>(norm.weight_of(static_cast<int64_t>(first)));
        for (size_t i = 0; i < count; ++i)
          result[first + i] = formula(group, x[i], weight[start + i], bias[start + i]);
      }
    };
    return true;
  };
}

Alteration rope_formula(PairFormula formula, std::string words) {
  return [formula = std::move(formula), words = std::move(words)](Altered& altered, size_t op) {
    const op::Rope* rope = rope_at(altered, op);
    if (rope == nullptr) return false;
    std::vector<Turn> turns;
    for (int64_t pair = 0; pair < rope->dims / 2; ++pair) turns.push_back(turn_of(*rope, pair));
    rotate_rows(altered, op, *rope, turns, 0, formula, words);
    return true;
  };
}

// Of halves the frequency of number i is that of pair i mod half; of neighbours that of pair i / 2.
Alteration other_frequencies() {
  return [](Altered& altered, size_t op) {
    const op::Rope* rope = rope_at(altered, op);
    if (rope == nullptr || rope->dims <= 2) return false;
    const int64_t half = rope->dims / 2;
    const bool adjacent = rope->pairing == op::Rope::Pairing::kAdjacent;
    std::vector<Turn> turns;
    for (int64_t pair = 0; pair < half; ++pair) {
      Turn turn = turn_of(*rope, pair);
      turn.pair_of_first = adjacent ? turn.first % half : turn.first / 2;
      turn.pair_of_second = adjacent ? turn.second % half : turn.second / 2;
      turns.push_back(turn);
    }
    rotate_rows(altered, op, *rope, turns, 0, rotated,
                "each number turned by another pair's angle");
    return true;
  };
}

Alteration rotates_last() {
  return [](Altered& altered, size_t op) {
    const op::Rope* rope = rope_at(altered, op);
    if (rope == nullptr || rope->dims >= rope->head_size) return false;
    std::vector<Turn> turns;
    for (int64_t pair = 0; pair < rope->dims / 2; ++pair) turns.push_back(turn_of(*rope, pair));
    rotate_rows(altered, op, *rope, turns, rope->head_size - rope->dims, rotated,
                "the last numbers of the head rotated");
    return true;
  };
}

Alteration changed_angles(std::function<double(double)> angle, std::function<double(double)> part) {
  return [angle = std::move(angle), part = std::move(part)](Altered& altered, size_t op) {
    const op::Rope* rope = rope_at(altered, op);
    if (rope == nullptr) return false;
    std::vector<Turn> turns;
    for (int64_t pair = 0; pair < rope->dims / 2; ++pair) turns.push_back(turn_of(*rope, pair));
    const PairFormula formula = [part](double x, double y, double cosine, double sine) {
      return rotated(x, y, part(cosine), part(sine));
    };
    rotate_rows(altered, op, *rope, turns, 0, formula, "x cos - y sin, x sin + y cos, rounded",
                angle);
    return true;
  };
}

Alteration rotates_heads(int64_t count) {
  return [count](Altered& altered, size_t op) {
    const op::Rope* rope = rope_at(altered, op);
    if (rope == nullptr) return false;
    const int64_t end = count * rope->head_size;
    if (count < 1 || end >= altered.program().value(altered.op(op).outputs[0]).width) return false;
    std::vector<Turn> turns;
    for (int64_t pair = 0; pair < rope->dims / 2; ++pair) turns.push_back(turn_of(*rope, pair));
    rotate_rows(altered, op, *rope, turns, 0, rotated, "the first heads alone rotated");
    op::Deviation& deviation = altered.deviation(op);
    deviation.row = [all = deviation.row, end](InputRows inputs, int64_t position,
                                               std::span<double> result) {
      all(inputs, position, result);
      std::ranges::copy(inputs[0].subspan(static_cast<size_t>(end)), result.begin() + end);
    };
    return true;
  };
}

Alteration weighted_sum(double first, double second) {
  return [=](Altered& altered, size_t op) {
    if (!std::holds_alternative<op::Add>(altered.op(op).what)) return false;
    op::Deviation& deviation = altered.deviation(op);
    deviation.formula = fmt::format("{:g} · first + {:g} · second", first, second);
    deviation.row = [=](InputRows inputs, int64_t, std::span<double> result) {
      for (size_t i = 0; i < result.size(); ++i)
        result[i] = first * inputs[0][i] + second * inputs[1][i];
    };
    return true;
  };
}

Alteration then(std::function<void(std::span<double> row)> what, std::string words) {
  return [what = std::move(what), words = std::move(words)](Altered& altered, size_t op) {
    op::Deviation& deviation = altered.deviation(op);
    deviation.gives = what;
    deviation.formula = words;
    return true;
  };
}

Alteration activation_function(std::function<double(double)> function) {
  return [function = std::move(function)](Altered& altered, size_t op) {
    if (!std::holds_alternative<op::Activate>(altered.op(op).what)) return false;
    op::Deviation& deviation = altered.deviation(op);
    deviation.formula = altered.op(op).inputs.size() > 1 ? "f(gate) · up" : "f(up)";
    deviation.row = [function](InputRows inputs, int64_t, std::span<double> result) {
      for (size_t i = 0; i < result.size(); ++i)
        result[i] = function(inputs[0][i]) * (inputs.size() > 1 ? inputs[1][i] : 1);
    };
    return true;
  };
}

Alteration gated_formula(std::function<double(op::Activate::Kind, double gate, double up)> formula,
                         std::string words) {
  return [formula = std::move(formula), words = std::move(words)](Altered& altered, size_t op) {
    const auto* own = std::get_if<op::Activate>(&altered.op(op).what);
    if (own == nullptr || altered.op(op).inputs.size() < 2) return false;
    op::Deviation& deviation = altered.deviation(op);
    deviation.formula = words;
    deviation.row = [formula, kind = own->kind](InputRows inputs, int64_t,
                                                std::span<double> result) {
      for (size_t i = 0; i < result.size(); ++i)
        result[i] = formula(kind, inputs[0][i], inputs[1][i]);
    };
    return true;
  };
}

}  // namespace lockstep::doctor
