#include "doctor/rounding_hypotheses.h"

#include "doctor/grids.h"
#include "doctor/precision_diagnosis.h"

namespace lockstep::doctor {
namespace {

bool is_fine(const std::optional<std::string>& type) {
  return !type || *type == "f32" || *type == "f64";
}

// The inputs from `first` on.
Alteration takes_rounded(const Grid& grid, size_t first) {
  return [&grid, first](Altered& altered, size_t op) {
    altered.deviation(op).takes = [&grid, first](size_t input, std::span<double> row) {
      if (input >= first) round_row(grid, row, 0);
    };
    return true;
  };
}

Alteration gives_rounded(const Grid& grid) {
  return [&grid](Altered& altered, size_t op) {
    altered.deviation(op).gives = [&grid](std::span<double> row) { round_row(grid, row, 0); };
    return true;
  };
}

}  // namespace

std::vector<Hypothesis> rounding_hypotheses(const Examination& examination,
                                            std::span<const size_t> ops) {
  const Case& patient = examination.patient();
  const trace::Precision& declared = patient.side.precision;
  if (!is_fine(declared.compute) || !is_fine(declared.activations) || !is_fine(declared.kv))
    return {};
  const op::Program& program = examination.base().program();
  const op::Op& op = program.ops[ops.front()];
  const std::string& name = program.value(op.outputs[0]).name;
  std::vector<Hypothesis> out;
  const auto add = [&](const char* cause, const Grid& grid, const std::string& of,
                       Alteration alter) {
    Diagnosis told;
    PrecisionFinding rounding;
    rounding.cause = cause;
    rounding.type = grid.name;
    rounding.of = of;
    tell_precision(rounding, patient.side, told);
    const std::string where =
        ops.size() == 1 ? name : fmt::format("{} operations from {} on", ops.size(), name);
    out.push_back({cause, fmt::format("at {} {}", where, told.text), told.fix, told.parameters,
                   std::move(alter)});
    out.back().rounds = true;
  };
  for (const Grid& grid : common_grids()) {
    if (grid.name == "tf32") continue;
    if (std::holds_alternative<op::Linear>(op.what))
      add("precision.operands", grid, "inputs of products", takes_rounded(grid, 0));
    if (std::holds_alternative<op::Attention>(op.what))
      add("precision.cache", grid, "keys and values", takes_rounded(grid, 1));
    // Of the last one the recorded numbers tell it.
    if (ops.back() != examination.stretch().back())
      add("precision.result", grid, "results", gives_rounded(grid));
  }
  return out;
}

}  // namespace lockstep::doctor
