#include "engine/verify.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "base/progress.h"
#include "quant/decode.h"

namespace lockstep::engine {
namespace {

// Each once, in the order of their use: an embedding may also be the output matrix.
std::vector<const op::Weight*> weights_of(const op::Program& program) {
  std::vector<const op::Weight*> out;
  std::set<std::string_view> seen;
  const auto add = [&](const op::Weight& weight) {
    if (seen.insert(weight.name).second) out.push_back(&weight);
  };
  for (const op::Op& op : program.ops) {
    if (const auto* embed = std::get_if<op::Embed>(&op.what)) add(embed->table);
    if (const auto* linear = std::get_if<op::Linear>(&op.what)) {
      add(linear->weight);
      if (linear->bias) add(*linear->bias);
    }
    if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what)) {
      add(experts->weight);
      if (experts->bias) add(*experts->bias);
    }
    if (const auto* choose = std::get_if<op::Choose>(&op.what); choose != nullptr && choose->bias)
      add(*choose->bias);
    if (const auto* attention = std::get_if<op::Attention>(&op.what);
        attention != nullptr && attention->sinks)
      add(*attention->sinks);
    if (const auto* norm = std::get_if<op::Norm>(&op.what)) {
      add(norm->weight);
      if (norm->bias) add(*norm->bias);
    }
  }
  return out;
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

Result<WeightCheck> verify(const op::Weight& weight, const exec::Executor& executor,
                           Progress& progress) {
  WeightCheck out{weight.name};
  constexpr int64_t kAtOnce = 16 << 20;  // values
  const int64_t most = std::max<int64_t>(1, kAtOnce / std::max<int64_t>(1, weight.columns));
  for (int64_t first = 0; first < weight.rows; first += most) {
    const int64_t rows = std::min(most, weight.rows - first);
    LS_TRY(const std::vector<float> actual, executor.read_back(weight, first, rows));
    std::vector<float> expected(static_cast<size_t>(weight.columns));
    for (int64_t row = 0; row < rows; ++row) {
      quant::decode(weight.format->format(), weight.row(first + row), weight.columns,
                    expected.data());
      const float* read = actual.data() + row * weight.columns;
      for (int64_t i = 0; i < weight.columns; ++i) {
        const float value = expected[static_cast<size_t>(i)];
        if (same(value, read[i])) continue;
        if (out.wrong++ > 0) continue;
        out.first_wrong = (first + row) * weight.columns + i;
        out.expected = value;
        out.actual = read[i];
      }
    }
    out.values += rows * weight.columns;
  }
  progress.advance(1);
  return out;
}

}  // namespace

Result<std::vector<WeightCheck>> verify_weights(const op::Program& program,
                                                const exec::Executor& executor,
                                                const std::string& only) {
  std::vector<const op::Weight*> weights = weights_of(program);
  if (!only.empty()) {
    std::erase_if(weights, [&](const op::Weight* weight) { return weight->name != only; });
    if (weights.empty()) return error("the forward pass uses no tensor '{}'", only);
  }
  Progress progress("Reading weights back", static_cast<int64_t>(weights.size()), "tensors");
  std::vector<WeightCheck> out;
  for (const op::Weight* weight : weights) {
    LS_TRY(WeightCheck check, verify(*weight, executor, progress));
    out.push_back(std::move(check));
  }
  return out;
}

}  // namespace lockstep::engine
