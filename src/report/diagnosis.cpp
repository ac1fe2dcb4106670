// What the doctor did, for people: every experiment with its score.
#include "base/table.h"
#include "base/text.h"
#include "report/summary.h"

namespace lockstep::report {
namespace {

std::string attempts_table(const doctor::Diagnosis& d, int64_t width, const Paint& paint) {
  Table table({{"hypothesis"}, {"error left", true}, {"own/bound", true, 1}, {"cause", false, 2}});
  for (const doctor::Attempt& attempt : d.attempts)
    table.add({printable(attempt.text, std::max<int64_t>(20, width - 50)),
               short_number(attempt.error), attempt.ratio < 0 ? "-" : short_number(attempt.ratio),
               attempt.cause});
  return table.render(width, paint);
}

}  // namespace

std::string diagnosis_report(const Subject& subject, int64_t width, const Paint& paint) {
  std::string out;
  for (const doctor::Diagnosis& d : subject.diagnoses) {
    if (d.tried == 0) continue;
    out += fmt::format("\n{}\n", paint.bold(fmt::format("Experiments at {}", d.checkpoint)));
    out += fmt::format(
        "{} hypotheses; the op as it should be leaves an error of {} at the rows tried first. The "
        "best {}:\n",
        d.tried, short_number(d.error_before), d.attempts.size());
    out += attempts_table(d, width, paint);
    if (d.element)
      out += fmt::format(
          "Position {}, {}: recorded {:.9g}, should be {:.9g}; by the cause that is named "
          "{:.9g}.\n",
          d.element->position, d.element->place, d.element->recorded, d.element->expected,
          d.element->found);
  }
  return out;
}

}  // namespace lockstep::report
