// Powers of e, for whole rows of logits: vocabularies are long.
#pragma once

#include <span>
#include <vector>

namespace lockstep::parity {

// Of the logits of a row: e to the power of each minus the largest.
struct Powers {
  explicit Powers(std::span<const double> logits);
  double log_of_all() const;

  double largest;
  std::vector<double> each;
  double sum = 0;
};

}  // namespace lockstep::parity
