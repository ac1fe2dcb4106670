// Choices of experts that a side did not record, so that they were derived.
#pragma once

#include <cstdint>

namespace lockstep::parity {

struct DerivedChoices {
  int64_t rows = 0;
  int64_t open = 0;  // of those, too close to tell, or in an unknown order
};

}  // namespace lockstep::parity
