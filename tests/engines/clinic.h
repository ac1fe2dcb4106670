// Test-only: the trace of an engine beside that of an honest one, judged and diagnosed.
#pragma once

#include <string>
#include <vector>

#include "doctor/doctor.h"
#include "lab.h"

namespace lockstep::engines {

struct Diagnosed {
  parity::Comparison comparison;
  std::vector<doctor::Diagnosis> diagnoses;
  bool wrong() const { return comparison.first_defect.has_value(); }
};

// On one thread.
Diagnosed diagnose(const Lab& lab, const trace::Trace& honest, const trace::Trace& suspect,
                   doctor::Options options = {.seconds = 30});

// A line a diagnosis.
std::string tell(const std::vector<doctor::Diagnosis>& diagnoses);

}  // namespace lockstep::engines
