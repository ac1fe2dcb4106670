// Rows that are zero, wholly or in some columns, where a model would have numbers: a kernel that
// did not run, or wrote only some of the columns.
#pragma once

#include <vector>

#include "forensics/row_stats.h"
#include "forensics/scan.h"
#include "forensics/source.h"

namespace lockstep::forensics {

std::vector<Finding> find_zeros(const Source& source, const std::vector<RowStats>& stats);

}  // namespace lockstep::forensics
