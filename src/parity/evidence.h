// Whether what was compared reaches the end of the forward pass.
#pragma once

#include "parity/scope.h"

namespace lockstep::parity {

Evidence find_evidence(const Scope& scope, const CompareOptions& options, const Comparison& c);

}  // namespace lockstep::parity
