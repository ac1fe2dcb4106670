#include "doctor/decode_hypotheses.h"

#include <algorithm>
#include <map>

#include "parity/arithmetic.h"

namespace lockstep::doctor {
namespace {

constexpr const char* kDecode = "weight.decode";
// Weights larger than this are not made anew: 1 GiB.
constexpr int64_t kLargestDecoded = int64_t{1} << 28;

const op::Program& file_of(const Examination& examination) {
  return examination.patient().side.forwards.front().program;
}

// Of Linear and Embed, as the file has it.
const op::Weight* matrix_of(const op::Op& op) {
  return std::holds_alternative<op::Norm>(op.what) ? nullptr : weight_of(op);
}

Hypothesis decode_hypothesis(const Examination& examination, const DecodingFit& fit,
                             const op::Weight& weight) {
  const std::string format(weight.format->name);
  Hypothesis out{
      kDecode,
      fmt::format("it decodes {} of {} wrongly: it {}", format, weight.name, describe(fit, weight)),
      fmt::format("Look at how blocks of {} are decoded.", format),
      {{"tensor", weight.name}, {"format", format}, {"how", std::string(fit.decoding->how)}},
      decoded_as(file_of(examination), fit, examination.patient().threads)};
  out.of_one_op = !fit.blocks.empty() || !fit.outputs.empty();
  out.rank = out.of_one_op ? 2 : 0;
  out.of_any_kind = true;
  return out;
}

// The rounding that the judge expects of an op whose input and result were recorded.
parity::Arithmetic arithmetic_at(const Case& patient, const op::Op& op) {
  const auto stored = [&](op::ValueId id) {
    const auto* info =
        patient.side.trace->checkpoint(patient.side.forwards.front().program.value(id).name);
    return info != nullptr ? info->dtype : DType::kF32;
  };
  parity::Arithmetic out = parity::arithmetic_of(patient.side.precision, stored(op.outputs[0]));
  for (const op::ValueId input : op.inputs)
    out.read = std::max(out.read, parity::unit(stored(input)));
  return out;
}

// By the recorded inputs and outputs of the last op of the stretch.
std::vector<DecodingFit> fits_of_last(Examination& examination) {
  const Case& patient = examination.patient();
  const size_t last = examination.stretch().back();
  const op::Op& op = examination.base().program().ops[last];
  const op::Weight* weight = matrix_of(file_of(examination).ops[last]);
  std::vector<int64_t> positions;
  for (const int64_t position : patient.judged)
    if (patient.side.trace->row(file_of(examination).value(patient.value).name, position))
      positions.push_back(position);
  const auto y = examination.recorded_at(positions);
  if (!y) return {};
  const parity::Arithmetic arithmetic = arithmetic_at(patient, op);
  if (const auto* embed = std::get_if<op::Embed>(&op.what)) {
    std::vector<int64_t> rows;
    for (const int64_t position : positions)
      rows.push_back(embed->index == op::Embed::Index::kPosition
                         ? position
                         : patient.side.tokens[static_cast<size_t>(position)]);
    if (!std::ranges::all_of(rows, [&](int64_t row) { return row >= 0 && row < weight->rows; }))
      return {};
    return find_decoding(Lookup{*weight, rows, *y, arithmetic});
  }
  // A matrix that is decoded wrongly is wrong at every position.
  if (2 * patient.wrong.size() < positions.size()) return {};
  const auto x = examination.rows_of(op.inputs[0], positions);
  if (!x) return {};
  op::Linear linear = std::get<op::Linear>(op.what);
  linear.weight = *weight;
  return find_decoding(Projection{linear, *x, *y, arithmetic}, patient.threads);
}

// The last op is a product or a lookup that stands alone, with a quantized weight.
bool shows_decoding(const Examination& examination) {
  const size_t last = examination.stretch().back();
  const op::Op& op = examination.base().program().ops[last];
  const op::Weight* weight = matrix_of(file_of(examination).ops[last]);
  return examination.alone() && examination.stretch().size() == 1 && weight != nullptr &&
         matrix_of(op) != nullptr && parity::is_quantized(*weight) &&
         op.outputs[0] == examination.patient().value &&
         !examination.base().forward().deviations.contains(last);
}

std::vector<Hypothesis> all_decodings(const Examination& examination, const op::Weight& weight,
                                      bool of_format) {
  std::vector<Hypothesis> out;
  for (const Decoding& decoding : decodings_of(weight.format->format())) {
    if (!applies(decoding, weight)) continue;
    out.push_back(decode_hypothesis(examination, {.decoding = &decoding}, weight));
    if (of_format)
      out.back().text = fmt::format("it decodes {} wrongly, in all tensors there: it {}",
                                    weight.format->name, decoding.words);
  }
  return out;
}

}  // namespace

Alteration decoded_as(const op::Program& file, DecodingFit fit, int threads) {
  return [&file, fit = std::move(fit), threads](Altered& altered, size_t op) {
    const op::Weight* weight = matrix_of(file.ops[op]);
    op::Weight* changed = weight != nullptr ? weight_of(altered.op(op)) : nullptr;
    if (changed == nullptr || weight->rows * weight->columns > kLargestDecoded) return false;
    if (weight->format->format() != fit.decoding->format) return true;
    if (!applies(*fit.decoding, *weight)) return false;
    *changed = altered.keep(*weight, std::move(decode_fit(*weight, fit, threads)->numbers));
    return true;
  };
}

std::vector<DecodingTarget> decode_hypotheses(Examination& examination, DecodingScope scope) {
  std::vector<DecodingTarget> out;
  const op::Program& file = file_of(examination);
  const size_t last = examination.stretch().back();
  if (shows_decoding(examination)) {
    if (scope == DecodingScope::kTensors) return {};
    DecodingTarget target{{last}, {}};
    for (const DecodingFit& fit : fits_of_last(examination))
      if (fit.explains())
        target.hypotheses.push_back(
            decode_hypothesis(examination, fit, *matrix_of(file.ops[last])));
    out.push_back(std::move(target));
    return out;
  }
  std::map<quant::Format, std::vector<size_t>> by_format;
  for (const size_t op : examination.stretch())
    if (const op::Weight* weight = matrix_of(file.ops[op]))
      by_format[weight->format->format()].push_back(op);
  for (const auto& [format, ops] : by_format) {
    if (scope == DecodingScope::kFormats)
      out.push_back(
          {ops, all_decodings(examination, *matrix_of(file.ops[ops.front()]), ops.size() > 1)});
    if (scope == DecodingScope::kTensors && ops.size() > 1)
      for (const size_t op : ops)
        out.push_back({{op}, all_decodings(examination, *matrix_of(file.ops[op]), false)});
  }
  return out;
}

bool same_mistake(const Hypothesis& a, const Hypothesis& b) {
  if (a.cause != b.cause || a.cause == kUnknown) return false;
  if (a.cause != kDecode) return a.of_one_op;
  const auto value = [](const Hypothesis& of, std::string_view name) {
    return std::ranges::find(of.parameters, name, &Parameter::name)->value;
  };
  return value(a, "format") == value(b, "format") && value(a, "how") == value(b, "how");
}

std::optional<Explanation> explain_garbage(Examination& examination) {
  if (!shows_decoding(examination)) return std::nullopt;
  const size_t last = examination.stretch().back();
  for (const DecodingFit& fit : fits_of_last(examination)) {
    if (!fit.explains()) continue;
    Explanation out;
    const op::Weight& weight = *matrix_of(file_of(examination).ops[last]);
    Trial trial{decode_hypothesis(examination, fit, weight), {last}, 0, 0, fit.ratio_after, {}};
    trial.judgement.explained = std::ssize(examination.patient().wrong);
    trial.judgement.ratio = trial.judgement.explained_ratio = fit.ratio_after;
    trial.judgement.explained_before = fit.ratio_before;
    out.tried = std::ssize(decodings_of(fit.decoding->format));
    out.attempts = {{trial.hypothesis.cause, trial.hypothesis.text, 0, trial.ratio}};
    out.chosen = {std::move(trial)};
    return out;
  }
  return std::nullopt;
}

}  // namespace lockstep::doctor
