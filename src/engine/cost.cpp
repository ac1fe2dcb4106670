#include "engine/cost.h"

#include <algorithm>

#include "base/check.h"
#include "base/dtype.h"

namespace lockstep::engine {
namespace {

int64_t whole(const op::Weight& weight) {
  return weight.rows * weight.row_bytes();
}

int64_t whole(const std::optional<op::Weight>& weight) {
  return weight ? whole(*weight) : 0;
}

// What one token needs of the op's weights.
int64_t weight_bytes(const op::Program& program, const op::Op& op) {
  const op::What& what = op.what;
  if (const auto* embed = std::get_if<op::Embed>(&what)) return embed->table.row_bytes();
  if (const auto* norm = std::get_if<op::Norm>(&what))
    return whole(norm->weight) + whole(norm->bias);
  if (const auto* linear = std::get_if<op::Linear>(&what))
    return whole(linear->weight) + whole(linear->bias);
  if (const auto* choose = std::get_if<op::Choose>(&what)) return whole(choose->bias);
  if (const auto* attention = std::get_if<op::Attention>(&what)) return whole(attention->sinks);
  if (const auto* experts = std::get_if<op::ExpertLinear>(&what))
    return (whole(experts->weight) + whole(experts->bias)) / experts->experts *
           program.value(op.inputs[1]).width;
  return 0;
}

// Positions that `tokens` tokens from an empty cache look at, all together.
double positions_seen(const op::Attention& attention, int64_t tokens) {
  const int64_t window = attention.window > 0 ? attention.window : tokens;
  const int64_t growing = std::min(tokens, window);  // tokens that see all positions so far
  return static_cast<double>(growing) * static_cast<double>(growing + 1) / 2 +
         static_cast<double>(tokens - growing) * static_cast<double>(window);
}

double number_bytes(std::string_view type) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    if (name(dtype) == type) return static_cast<double>(size_bytes(dtype));
  const quant::FormatInfo* format = quant::find_format(type);
  LS_CHECK(format != nullptr, "a KV cache of unknown type '{}'", type);
  return static_cast<double>(format->block_bytes) / static_cast<double>(format->block_values);
}

}  // namespace

Traffic generation_traffic(const op::Program& program, int64_t tokens, std::string_view kv) {
  LS_CHECK(tokens > 0);
  Traffic traffic;
  for (const op::Op& step : program.ops) {
    traffic.weight_bytes += weight_bytes(program, step);
    if (const auto* attention = std::get_if<op::Attention>(&step.what)) {
      const int64_t numbers = attention->kv_heads * (attention->head_size + attention->value_size);
      traffic.kv_bytes += positions_seen(*attention, tokens) / static_cast<double>(tokens) *
                          static_cast<double>(numbers) * number_bytes(kv);
    }
  }
  return traffic;
}

double prompt_multiply_adds(const op::Program& program, int64_t tokens) {
  LS_CHECK(tokens > 0);
  double sum = 0;
  for (const op::Op& step : program.ops) {
    if (const auto* linear = std::get_if<op::Linear>(&step.what)) {
      const bool head = step.outputs.front() == program.head;
      sum += static_cast<double>(head ? 1 : tokens) * static_cast<double>(linear->weight.rows) *
             static_cast<double>(linear->weight.columns);
    } else if (const auto* experts = std::get_if<op::ExpertLinear>(&step.what)) {
      sum += static_cast<double>(tokens) *
             static_cast<double>(program.value(step.outputs[0]).width) *
             static_cast<double>(experts->weight.columns);
    } else if (const auto* attention = std::get_if<op::Attention>(&step.what)) {
      sum += positions_seen(*attention, tokens) * static_cast<double>(attention->heads) *
             static_cast<double>(attention->head_size + attention->value_size);
    }
  }
  return sum;
}

}  // namespace lockstep::engine
