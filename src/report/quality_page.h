// What a quantized file costs, as one HTML page.
#pragma once

#include <string>

#include "quality/quality.h"

namespace lockstep::report {

std::string quality_page(const quality::Report& report);

}  // namespace lockstep::report
