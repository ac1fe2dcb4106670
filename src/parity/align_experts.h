// Experts that tokens chose have no order that means anything: the two sides are held side by side
// expert by expert.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parity/scope.h"

namespace lockstep::parity {

// For each slot of the reference's row the slot of the suspect's row that has the same expert; what
// only one side chose stands in the slots that are left. Empty: the checkpoint has no slots, or a
// side did not record which experts they are.
std::vector<int64_t> slots_of_suspect(const Traces& traces, const std::string& checkpoint,
                                      int64_t position);

// Says where the sides took other experts.
void note_other_experts(const Traces& traces, const Scope& scope, Comparison& out);

}  // namespace lockstep::parity
