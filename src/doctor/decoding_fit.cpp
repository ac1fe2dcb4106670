// What a fit says: in words, and as a weight.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/parallel.h"
#include "doctor/find_decoding.h"
#include "doctor/some_blocks.h"
#include "quant/decode.h"

namespace lockstep::doctor {
namespace {

// "3", "3 and 4", "3 to 7", "3, 5 and 9", "12 of them from 3 on".
std::string list_of(const std::vector<int64_t>& all) {
  if (all.size() == 1) return fmt::format("{}", all[0]);
  if (all.back() - all.front() + 1 == std::ssize(all))
    return fmt::format("{} {} {}", all.front(), all.size() == 2 ? "and" : "to", all.back());
  if (all.size() > 6)
    return fmt::format("{}, {}, {} and {} more", all[0], all[1], all[2], all.size() - 3);
  return fmt::format("{} and {}", fmt::join(all.begin(), all.end() - 1, ", "), all.back());
}

}  // namespace

std::string describe(const DecodingFit& fit, const op::Weight& weight) {
  std::string out = fit.decoding->words;
  if (fit.also != nullptr) out += ", and " + fit.also->words;
  const auto blocks = weight.columns / weight.format->block_values;
  if (!fit.blocks.empty())
    out += fmt::format(", in block{} {} of the {} of a row", fit.blocks.size() > 1 ? "s" : "",
                       list_of(fit.blocks), blocks);
  if (!fit.outputs.empty())
    out += fmt::format(", in row{} {} of the {} of the tensor", fit.outputs.size() > 1 ? "s" : "",
                       list_of(fit.outputs), weight.rows);
  return out;
}

void decode_fit_row(const op::Weight& weight, int64_t row, const DecodingFit* fit, float* out) {
  const bool whole = fit != nullptr && fit->blocks.empty() &&
                     (fit->outputs.empty() || std::ranges::binary_search(fit->outputs, row));
  if (!whole) quant::decode(weight.format->format(), weight.row(row), weight.columns, out);
  if (fit == nullptr) return;
  if (!fit->outputs.empty() && !std::ranges::binary_search(fit->outputs, row)) return;
  if (whole) {
    decode_row(weight, row, *fit->decoding, fit->also, out);
    return;
  }
  std::vector<float> other(static_cast<size_t>(weight.columns));
  decode_row(weight, row, *fit->decoding, fit->also, other.data());
  const int64_t width = weight.format->block_values;
  for (const int64_t block : fit->blocks)
    std::copy_n(other.begin() + block * width, width, out + block * width);
}

std::unique_ptr<DecodedWeight> decode_fit(const op::Weight& weight, const DecodingFit& fit,
                                          int threads) {
  auto out = std::make_unique<DecodedWeight>();
  out->numbers.resize(static_cast<size_t>(weight.rows * weight.columns));
  parallel_rows(weight.rows, weight.columns, threads, [&](int64_t row) {
    decode_fit_row(weight, row, &fit, out->numbers.data() + row * weight.columns);
  });
  out->weight = {.name = weight.name,
                 .format = &quant::info(quant::Format::kF32),
                 .rows = weight.rows,
                 .columns = weight.columns,
                 .data = std::as_bytes(std::span(out->numbers))};
  return out;
}

parity::Arithmetic for_copy(const parity::Arithmetic& arithmetic, const op::Weight& weight) {
  parity::Arithmetic out = arithmetic;
  out.products = parity::activation_operand(arithmetic, weight);
  out.weights = parity::weight_operand(arithmetic, weight);
  out.levels = 0;
  return out;
}

}  // namespace lockstep::doctor
