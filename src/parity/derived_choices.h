// Choices of experts that a side did not record, so that they were derived.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::parity {

// Positions as runs of neighbours, in order: the first and the last of each.
using Runs = std::vector<std::pair<int64_t, int64_t>>;
// Those of both.
Runs united(Runs a, const Runs& b);
int64_t count(const Runs& runs);

struct DerivedChoices {
  struct Of {
    Runs all;
    Runs open;  // of those, too close to tell, or in an unknown order
  };
  std::map<std::string, Of> by_checkpoint;  // that was not recorded

  int64_t rows() const;
  int64_t open() const;
};

}  // namespace lockstep::parity
