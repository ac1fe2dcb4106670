// Rows (or columns) of B that stand elsewhere in A.
#pragma once

#include <optional>
#include <string>

#include "audit/measure.h"

namespace lockstep::audit {

// In words what moved, where all wrong rows are found again at other places. `width`: of a row.
std::optional<std::string> find_rows(const Values& a, const Values& b, int64_t width,
                                     const Measured& measured);
std::optional<std::string> find_columns(const Values& a, const Values& b, int64_t width,
                                        const Measured& measured);
// Single numbers of a vector.
std::optional<std::string> find_numbers(const Values& a, const Values& b, const Measured& measured);

}  // namespace lockstep::audit
