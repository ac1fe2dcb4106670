#include "report/summary.h"

namespace lockstep::report {
namespace {

// Quoted where it must be (RFC 4180). A name that a spreadsheet would take for a formula gets an
// apostrophe, which makes it text.
std::string cell(std::string_view name) {
  std::string text(name);
  if (!text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos)
    text.insert(text.begin(), '\'');
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out(1, '"');
  for (const char c : text) out.append(c == '"' ? 2 : 1, c);
  out += '"';
  return out;
}

std::string side_cells(const parity::SideJudgement& side, const parity::Counts& counts) {
  std::string out =
      fmt::format(",{},{},{},{}", counts.nan, counts.infinite, counts.denormal, side.judged);
  if (!side.worst) return out + ",,,";
  const BoundedError own = bounded(*side.worst);
  return out + fmt::format(",{},{},{}", side.worst->position, own.error, own.bound);
}

}  // namespace

std::string csv_report(const parity::Comparison& comparison) {
  std::string out =
      "checkpoint,layer,verdict,positions,elements,differing,max_difference,mean_difference,"
      "relative_l2,nmse,cosine,sign_flips,magnitude_orders,worst_position,worst_relative_l2";
  for (const char* side : {"reference", "suspect"})
    for (const char* field :
         {"nan", "infinite", "denormal", "judged", "worst_judged_position", "own_error", "bound"})
      out += fmt::format(",{}_{}", side, field);
  out += "\n";
  for (const parity::CheckpointResult& c : comparison.checkpoints) {
    const parity::Metrics& m = c.metrics;
    const std::string layer = c.layer >= 0 ? fmt::format("{}", c.layer) : "";
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}", cell(c.name), layer,
                       parity::name(c.verdict), c.positions, m.elements, m.differing,
                       m.max_difference, m.mean_difference(), m.relative_l2(), m.nmse(), m.cosine(),
                       m.sign_flips, m.magnitude_orders(), c.worst_position, c.worst_relative_l2);
    out += side_cells(c.reference, m.reference) + side_cells(c.suspect, m.suspect) + "\n";
  }
  return out;
}

}  // namespace lockstep::report
