#include "clinic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "parity/scope.h"

namespace lockstep::engines {

Diagnosed diagnose(const Lab& lab, const trace::Trace& honest, const trace::Trace& suspect,
                   doctor::Options options) {
  parity::Scope scope;
  parity::CompareOptions compare;
  compare.threads = options.threads = 1;
  auto comparison = parity::compare(honest, suspect, &lab.model(), compare, &scope);
  LS_CHECK(comparison.ok(), "{}", comparison.error().message);
  Diagnosed out{std::move(*comparison), {}};
  out.diagnoses = doctor::diagnose(out.comparison, scope, &lab.model(), options);
  return out;
}

std::string tell(const std::vector<doctor::Diagnosis>& diagnoses) {
  std::string out;
  for (const doctor::Diagnosis& each : diagnoses)
    out +=
        fmt::format("  {} [{}]: {}\n", each.cause, fmt::join(each.alternatives, ", "), each.text);
  return out;
}

}  // namespace lockstep::engines
