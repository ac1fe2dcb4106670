#include <map>

#include <fmt/format.h>

#include "doctor/find_precision.h"
#include "parity/arithmetic.h"

namespace lockstep::doctor {
namespace {

std::string type_in_words(const std::string& type) {
  static const std::map<std::string, std::string> words = {{"f16", "half precision"},
                                                           {"bf16", "bfloat16"},
                                                           {"tf32", "TF32"},
                                                           {"f32", "single precision"},
                                                           {"e4m3", "8-bit floating point (e4m3)"},
                                                           {"e5m2", "8-bit floating point (e5m2)"},
                                                           {"q8_0", "8-bit whole numbers (q8_0)"},
                                                           {"q8_k", "8-bit whole numbers (q8_k)"}};
  const auto found = words.find(type);
  return found != words.end() ? found->second : type;
}

}  // namespace

std::string what_is_done(const PrecisionFinding& finding, bool all_over) {
  const std::string type = type_in_words(finding.type);
  if (finding.cause == "precision.table")
    return fmt::format("looks a function up in a table of {}", type);
  if (finding.cause == "precision.sum") return fmt::format("adds in {}", type);
  if (all_over && finding.of == "results") return fmt::format("computes in {}", type);
  return fmt::format("rounds {} to {}", finding.of, type);
}

std::string describe(const PrecisionFindings& findings, const trace::Precision& declared,
                     const op::Program& program) {
  if (!findings.found()) return "";
  std::string out;
  for (const PrecisionFinding& finding : findings.all) {
    if (!out.empty()) out += "; ";
    const std::string where = finding.values.size() == 1
                                  ? program.value(finding.values[0]).name
                                  : fmt::format("{} checkpoints from {} on", finding.values.size(),
                                                program.value(finding.values[0]).name);
    out += fmt::format("{} ({})", what_is_done(finding, false), where);
  }
  const std::string said = declared.compute
                               ? "although its manifest says " + parity::describe(declared)
                               : "and its manifest does not say it";
  trace::Precision assumed = declared;
  if (!assumed.compute) assumed.compute = "f32";
  out += " " + said;
  if (parity::describe(findings.declare) == parity::describe(assumed)) return out;
  return out + fmt::format(
                   "; declare it ({}) and the comparison judges by that: {} of {} wrong rows "
                   "are right then",
                   parity::describe(findings.declare), findings.rows - findings.left,
                   findings.rows);
}

}  // namespace lockstep::doctor
