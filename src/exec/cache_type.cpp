#include "exec/cache_type.h"

#include <algorithm>

#include "op/op.h"

namespace lockstep::exec {
namespace {

bool has_quantized_weight(const op::Op& op) {
  const op::Weight* weight = nullptr;
  if (const auto* linear = std::get_if<op::Linear>(&op.what)) weight = &linear->weight;
  if (const auto* experts = std::get_if<op::ExpertLinear>(&op.what)) weight = &experts->weight;
  return weight != nullptr && weight->format->block_values > 1;
}

}  // namespace

Result<bool> has_half_cache(const op::Program& program, const Options& options) {
  const DType usual =
      std::ranges::any_of(program.ops, has_quantized_weight) ? DType::kF16 : DType::kF32;
  const DType kv = options.kv.value_or(usual);
  if (kv != DType::kF16 && kv != DType::kF32) return error("the KV cache can be f16 or f32");
  return kv == DType::kF16;
}

}  // namespace lockstep::exec
