// What the doctor did, for people: every experiment with its score.
#include <algorithm>
#include <span>

#include "base/table.h"
#include "base/text.h"
#include "report/summary.h"

namespace lockstep::report {
namespace {

constexpr size_t kAttemptsShown = 40;

std::string attempts_table(std::span<const doctor::Attempt> best, int64_t width,
                           const Paint& paint) {
  Table table({{"hypothesis"}, {"error left", true}, {"own/bound", true, 1}, {"cause", false, 2}});
  for (const doctor::Attempt& attempt : best)
    table.add({printable(attempt.text, std::max<int64_t>(20, width - 50)),
               short_number(attempt.error), attempt.ratio < 0 ? "-" : short_number(attempt.ratio),
               attempt.cause});
  return table.render(width, paint);
}

// A number, and how it comes about.
std::string worked_out(const std::string& label, double value, const doctor::Working& working) {
  std::string out = fmt::format("  {} {:.9g}\n", label, value);
  if (working.formula.empty()) return out;
  out += fmt::format("      ={}\n", working.formula.substr(working.formula.find(" = ") + 2));
  for (const doctor::Working::Part& part : working.parts) {
    const std::string factors =
        part.factors.size() == 2
            ? fmt::format("{:.6g} · {:.6g} = ", part.factors[0], part.factors[1])
            : "";
    out += fmt::format("        {}: {}{:.6g}\n", part.name, factors, part.value);
  }
  if (working.others > 0)
    out += fmt::format("        {} smaller term{}: {:.6g}\n", working.others,
                       working.others == 1 ? "" : "s", working.others_sum);
  return out;
}

std::string element_text(const doctor::Diagnosis& d) {
  const doctor::Element& element = *d.element;
  const std::string& formula = element.right.formula;
  const std::string name = formula.substr(0, formula.find(" = "));
  std::string out =
      fmt::format("The number that is furthest off: position {}, {}{}\n", element.position,
                  element.place, name.empty() ? "" : fmt::format(", {}", name));
  out += fmt::format("  recorded  {:.9g}\n", element.recorded);
  out += worked_out("should be", element.expected, element.right);
  if (element.found)
    out += worked_out(fmt::format("under {}", d.cause), *element.found, element.wrong);
  return out;
}

}  // namespace

std::string diagnosis_report(const Subject& subject, int64_t width, const Paint& paint) {
  std::string out;
  for (const doctor::Diagnosis& d : subject.diagnoses) {
    if (d.tried == 0) continue;
    out += fmt::format("\n{}\n", paint.bold(fmt::format("Experiments at {}", d.checkpoint)));
    const auto best = std::span(d.attempts).first(std::min(d.attempts.size(), kAttemptsShown));
    out += fmt::format(
        "{} hypotheses; the op as it should be leaves an error of {} at the rows tried first. The "
        "best {}{}:\n",
        d.tried, short_number(d.error_before), best.size(),
        d.attempts.size() > best.size() ? " (--json has the others)" : "");
    out += attempts_table(best, width, paint);
    if (d.element) out += element_text(d);
  }
  return out;
}

}  // namespace lockstep::report
