// Writes a model with random weights: for tests, benchmarks and experiments that need the shapes
// and formats of a model, but not its knowledge.
#pragma once

#include <string>

#include "base/result.h"
#include "forge/plan.h"
#include "forge/spec.h"

namespace lockstep::forge {

enum class Existing { kRefuse, kReplace };

// The same spec gives the same bytes. The file appears when it is whole; an error leaves nothing.
// A progress bar is shown on a terminal.
Result<void> write_model(const Spec& spec, const std::string& path,
                         Existing existing = Existing::kRefuse);

// The same for a plan that was made before, of the same spec.
Result<void> write_model(const Spec& spec, const Plan& plan, const std::string& path,
                         Existing existing = Existing::kRefuse);

}  // namespace lockstep::forge
