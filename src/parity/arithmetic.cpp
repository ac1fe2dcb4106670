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
  out.half_sums = std::max(out.compute, read(precision.sums, out.compute));
  out.activations = read(precision.activations, out.compute);
  const auto name = [](std::string_view field, const std::optional<std::string>& text) {
    detail::PrecisionName found;
    if (text) detail::read_precision_name(field, *text, &found);
    return found;
  };
  const auto operand = [&](std::string_view field, const std::optional<std::string>& text) {
    if (!text || trace::find_dtype(*text)) return Operand();
    return operand_of(name(field, text));
  };
  // By the weight: 8 bits for quantized ones too, and halves of their own kind for halves.
  if (precision.activations &&
      (precision.activations->starts_with("q8") || precision.activations == "by_weight"))
    out.levels = kInt8Levels;
  if (precision.activations == "i16") out.levels = kInt16Levels;
  out.products = operand("activations", precision.activations);
  out.kv = read(precision.kv, out.activations);
  out.cache = operand("kv", precision.kv);
  if (precision.weights) out.weights = operand_of(name("weights", precision.weights));
  if (precision.compute == "tf32") {
    const Operand factor = operand("compute", precision.compute);
    out.factors = factor.unit;
    if (!out.products.rounds()) out.products = factor;
    if (!out.weights) out.weights = factor;
  }
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
  if (precision.sums && precision.sums != precision.compute)
    out += fmt::format(", sums of f16 products {}", *precision.sums);
  return out;
}

bool is_quantized(const op::Weight& weight) {
  const quant::Format format = weight.format_in_engine().format();
  return format != quant::Format::kF32 && format != quant::Format::kF16 &&
         format != quant::Format::kBF16;
}

int64_t activation_block(const op::Weight& weight, int64_t levels) {
  if (levels == 0 || !is_quantized(weight)) return 0;
  return levels == kInt16Levels || weight.format_in_engine().block_values == 256 ? 256 : 32;
}

Arithmetic for_product(Arithmetic arithmetic, const op::Weight& weight) {
  if (weight.format_in_engine().format() == quant::Format::kF16)
    arithmetic.compute = arithmetic.half_sums;
  return arithmetic;
}

Operand activation_operand(const Arithmetic& arithmetic, const op::Weight& weight) {
  const int64_t block = activation_block(weight, arithmetic.levels);
  if (block > 0) {
    Operand out;
    out.levels = arithmetic.levels;
    out.scale = Scale::kBlock;
    out.block = block;
    // Engines with 8 bits keep the scale in half precision.
    out.scale_unit = unit(out.levels == kInt8Levels ? DType::kF16 : DType::kF32);
    return out;
  }
  // They multiply half-precision weights with half-precision activations.
  const quant::Format format = weight.format_in_engine().format();
  if (arithmetic.levels == kInt8Levels && format == quant::Format::kF16)
    return plain_operand(DType::kF16);
  if (arithmetic.levels == kInt8Levels && format == quant::Format::kBF16)
    return plain_operand(DType::kBF16);
  return arithmetic.products;
}

Operand weight_operand(const Arithmetic& arithmetic, const op::Weight& weight) {
  if (arithmetic.weights) return is_quantized(weight) ? Operand() : *arithmetic.weights;
  // Not declared: products read both factors in the same type.
  const Operand other = activation_operand(arithmetic, weight);
  const double handed_on = arithmetic.operands();
  if (other.is_plain() && other.unit > std::max(arithmetic.compute, handed_on)) return other;
  return handed_on > arithmetic.compute ? plain_operand(handed_on) : Operand();
}

}  // namespace lockstep::parity
