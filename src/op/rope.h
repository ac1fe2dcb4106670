// The angles that a Rope op rotates by.
#pragma once

#include <vector>

#include "op/op.h"

namespace lockstep::op {

// Radians a position, for each of the dims / 2 pairs, with factors and scaling applied.
std::vector<double> rope_frequencies(const Rope& rope);

// What the rotated numbers are multiplied by.
double rope_magnitude(const Rope& rope);

}  // namespace lockstep::op
