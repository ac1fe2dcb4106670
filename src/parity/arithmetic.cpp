#include "parity/arithmetic.h"

#include <algorithm>

namespace lockstep::parity {

Arithmetic arithmetic_of(const trace::Precision& precision, DType stored) {
  Arithmetic out;
  const auto read = [](const std::optional<std::string>& name, double otherwise) {
    if (!name) return otherwise;
    const auto dtype = trace::find_dtype(*name);
    return dtype ? unit(*dtype) : otherwise;
  };
  out.declared = precision.compute.has_value();
  out.compute = read(precision.compute, unit(DType::kF32));
  out.activations = read(precision.activations, out.compute);
  // By the weight: 8 bits for quantized ones too, and halves of their own kind for halves.
  if (precision.activations &&
      (precision.activations->starts_with("q8") || precision.activations == "by_weight"))
    out.levels = kInt8Levels;
  if (precision.activations == "i16") out.levels = kInt16Levels;
  out.kv = read(precision.kv, out.activations);
  out.stored = unit(stored);
  return out;
}

std::string describe(const trace::Precision& precision) {
  std::string out = precision.compute.value_or("precision unknown");
  if (precision.activations && precision.activations != precision.compute)
    out += fmt::format(", activations {}", *precision.activations);
  if (precision.kv && precision.kv != precision.compute)
    out += fmt::format(", kv {}", *precision.kv);
  if (precision.weights) out += fmt::format(", weights {}", *precision.weights);
  return out;
}

bool is_quantized(const op::Weight& weight) {
  const quant::Format format = weight.format->format();
  return format != quant::Format::kF32 && format != quant::Format::kF16 &&
         format != quant::Format::kBF16;
}

int64_t activation_block(const op::Weight& weight, int64_t levels) {
  if (levels == 0 || !is_quantized(weight)) return 0;
  return levels == kInt16Levels || weight.format->block_values == 256 ? 256 : 32;
}

}  // namespace lockstep::parity
