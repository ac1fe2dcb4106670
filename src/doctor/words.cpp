#include "doctor/words.h"

#include <cmath>

namespace lockstep::doctor {
namespace {

std::string number(double value) {
  if (!std::isfinite(value)) return "infinitely many";
  if (value != 0 && (value < 1e-2 || value >= 1e5)) return fmt::format("{:.1e}", value);
  return fmt::format("{:.3g}", value);
}

std::string place(const Diagnosis& diagnosis) {
  std::string out = diagnosis.after.empty() ? fmt::format("At {}", diagnosis.checkpoint)
                                            : fmt::format("Somewhere between {} and {}",
                                                          diagnosis.after, diagnosis.checkpoint);
  const auto more = std::ssize(diagnosis.checkpoints) - 1;
  if (more > 0) out += fmt::format(" and {} more checkpoint{}", more, more == 1 ? "" : "s");
  return out;
}

}  // namespace

std::string sentence(const Diagnosis& d) {
  if (d.cause == "garbage") return fmt::format("{}: it {}", place(d), d.text);
  std::string out = fmt::format("{}: {}", place(d), d.text);
  if (d.cause == kUnknown || d.ratio_before <= 0) return out;
  // What is left is another mistake.
  if (d.ratio_after > 1 && d.explained < d.rows)
    return out + fmt::format(
                     "; computed that way, {} from {} to {} times the bound; what is left "
                     "has another cause",
                     d.rows == 1 ? std::string("the error of the wrong row falls")
                                 : fmt::format("the worst error of {} wrong rows falls", d.rows),
                     number(d.ratio_before), number(d.ratio_after));
  if (d.explained == 0) return out;
  const std::string rows = d.explained == d.rows
                               ? (d.rows == 1 ? std::string("the wrong row is")
                                              : fmt::format("all {} wrong rows are", d.rows))
                               : fmt::format("{} of {} wrong rows are", d.explained, d.rows);
  // A number of a table on the edge between two may fall to either side.
  const bool edges =
      d.ratio_after > 1 || (d.explained < d.rows && d.cause.starts_with("precision."));
  out += fmt::format(
      "; computed that way, {} within rounding{} (worst error over bound: {} before, {} after)",
      rows, edges ? " but for single numbers on an edge" : "", number(d.ratio_before),
      number(d.ratio_after));
  if (!d.after.empty())
    out += fmt::format("; of {} hypotheses {} explains it", d.tried,
                       d.alternatives.empty() ? "only this one" : "this one");
  return out;
}

std::string unknown_clause(const Explanation& explanation) {
  std::string out =
      explanation.nearly
          ? fmt::format(
                "of what {} leaves the cause is not known: none of {} hypotheses explains it",
                explanation.nearly->hypothesis.cause, explanation.tried)
          : fmt::format("none of {} hypotheses explains it", explanation.tried);
  if (!explanation.complete) out += " (time ran out before all were tried)";
  if (!explanation.seen.empty() && !explanation.nearly)
    out += fmt::format("; {}", explanation.seen);
  return out;
}

}  // namespace lockstep::doctor
