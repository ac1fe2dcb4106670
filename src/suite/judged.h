// A comparison as the result of a job. Within this folder.
#pragma once

#include "report/compared.h"
#include "suite/results.h"

namespace lockstep::suite {

void fill_result(const report::Compared& compared, CaseResult& result);

}  // namespace lockstep::suite
