// Which ops of a stretch a hypothesis is tried on.
#pragma once

#include <vector>

#include "doctor/examination.h"

namespace lockstep::doctor {

using Targets = std::vector<std::vector<size_t>>;

struct TargetSets {
  Targets together;  // ops that one mistake in the engine makes wrong together
  Targets single;
  bool layers = false;  // the stretch has ops of several layers
};

// Together: the rotations of a layer, an op in all layers, all of a kind.
TargetSets targets_of(const Examination& examination);

}  // namespace lockstep::doctor
