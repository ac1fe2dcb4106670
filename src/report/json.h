// The documents of JSON reports, before they become text.
#pragma once

#include <cmath>

#include <nlohmann/json.hpp>

#include "report/report.h"

namespace lockstep::report {

// JSON has no word for infinities and NaN: they are null.
inline nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

// The number that a diagnosis works out (docs/diagnosis.md); null where there is none.
nlohmann::ordered_json element_json(const doctor::Diagnosis& diagnosis);

// docs/compare-json.md
nlohmann::ordered_json comparison_json(const parity::Comparison& comparison,
                                       const Subject& subject);

// The same with `page`, for the HTML report (docs/report-page.md). As text it takes about `limit`
// bytes; `page.left_out` says what that leaves out.
nlohmann::ordered_json page_json(const parity::Comparison& comparison, const Subject& subject,
                                 int64_t limit);

}  // namespace lockstep::report
