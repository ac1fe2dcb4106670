// What the sides were given (tokens, a model file, settings) and what they chose: it needs no
// replay.
#pragma once

#include <vector>

#include "doctor/diagnosis.h"
#include "parity/scope.h"

namespace lockstep::doctor {

// Where that differs, and the sides do.
void diagnose_given(const parity::Comparison& comparison, const parity::Scope& scope,
                    std::vector<Diagnosis>& out);

// Tokens that a side's own logits cannot give.
void diagnose_choices(const parity::Comparison& comparison, std::vector<Diagnosis>& out);

}  // namespace lockstep::doctor
